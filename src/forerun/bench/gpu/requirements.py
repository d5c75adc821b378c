"""What the GPU must reach, held against what was found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Shapes = Mapping[str, Mapping[str, Any]]


def requirements(
    shapes: Sequence[Mapping[str, Any]],
    answers: Mapping[str, Any] | None,
    oracle: Mapping[str, Any] | None,
) -> list[dict[str, Any]]:
    """One entry each: `reached` is None where it was not measured."""
    by_name = {shape["shape"]: shape for shape in shapes}
    plain_3b, plain_1b = _device_s(by_name, "3b"), _device_s(by_name, "1b")
    verified, batch = _device_s(by_name, "3b", tokens=6), _device_s(by_name, "3b", requests=32)
    different = [shape["num_rows_different"] for shape in shapes]
    found = answers or {}
    small = _device_s(by_name, "135m")  # SmolLM2's shape
    host = None if answers is None or small is None else answers["plain_s"] - small
    small_16 = _device_s(by_name, "135m", requests=16)
    host_16 = None if answers is None or small_16 is None else answers["batch_round_s"] - small_16
    return [
        _at_most("1B shape, plain, ms", _ms(plain_1b), 0.79),
        _at_most("3B shape, plain, ms", _ms(plain_3b), 1.85),
        _at_most("SmolLM2 through LLM, plain, ms", _ms(found.get("plain_s")), 0.60),
        _at_most("host time per token beyond the pass, SmolLM2, ms", _ms(host), 0.15),
        _at_most("6 tokens ÷ 1 token, 3B shape", _ratio(verified, plain_3b), 1.10),
        _at_least("batch 32 ÷ 32 × batch 1, 3B shape", _ratio(plain_3b, batch), 0.75),
        _at_most("start to first token, s", found.get("first_token_s"), 20.0),
        _at_most("rows that differ in company", sum(different) if different else None, 0),
        _at_most("answers that differ with speculation", found.get("num_different"), 0),
        _at_most("host time per round beyond the pass, batch 16, ms", _ms(host_16), 0.5),
        _at_least(
            "oracle drafter, γ = 5, α = 0.8, 3B ÷ plain",
            None if oracle is None else oracle["oracle"]["speedup"],
            3.0,
        ),
        _at_least("1B drafts for 3B, share of E/(v+γc)", _drafted_share(by_name, oracle), 0.92),
        _missing("int8 weights, 3B shape, plain: ≤ 1.35 ms"),
        _missing("Qwen2.5-Coder-1.5B edits code: ≥ 2.5 × plain"),
    ]


def _device_s(shapes: Shapes, name: str, requests: int = 1, tokens: int = 1) -> float | None:
    for found in shapes.get(name, {}).get("passes", ()):
        if (found["num_requests"], found["num_tokens"]) == (requests, tokens):
            return float(found["device_s"])
    return None


def _drafted_share(shapes: Shapes, oracle: Mapping[str, Any] | None) -> float | None:
    """Of what the passes' own times allow, at the depth that is fastest; c and v are of passes on
    the device alone, E is what the oracle's guesses gave."""
    plain, draft = _device_s(shapes, "3b"), _device_s(shapes, "1b")
    if oracle is None or "draft" not in oracle or plain is None or draft is None:
        return None
    best = max(oracle["draft"]["runs"], key=lambda run: float(run["speedup"]))
    verified = _device_s(shapes, "3b", tokens=best["depth"] + 1)
    if verified is None:
        return None
    allowed = best["tokens_per_round"] / ((verified + best["depth"] * draft) / plain)
    return float(best["speedup"] / allowed)


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3


def _ratio(over: float | None, under: float | None) -> float | None:
    return None if over is None or under is None else over / under


def _at_most(what: str, found: float | None, bound: float) -> dict[str, Any]:
    reached = None if found is None else found <= bound
    return {"what": what, "must": f"≤ {bound:g}", "found": found, "reached": reached}


def _at_least(what: str, found: float | None, bound: float) -> dict[str, Any]:
    reached = None if found is None else found >= bound
    return {"what": what, "must": f"≥ {bound:g}", "found": found, "reached": reached}


def _missing(what: str) -> dict[str, Any]:
    return {"what": what, "must": "", "found": None, "reached": None}
