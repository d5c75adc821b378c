"""Figures of a record of `forerun bench gpu`, by name as in bench/aims.toml."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

Report = Mapping[str, Any]


def device_s(report: Report, shape: str, requests: int = 1, tokens: int = 1) -> float:
    """Return the seconds of a pass on the device."""
    passes = next(found["passes"] for found in report["shapes"] if found["shape"] == shape)
    of_size = {(one["num_requests"], one["num_tokens"]): one["device_s"] for one in passes}
    return float(of_size[requests, tokens])


def pass_ms(report: Report, aim: Mapping[str, Any]) -> float:
    return 1e3 * device_s(report, aim["shape"])


def verify_ratio(report: Report, aim: Mapping[str, Any]) -> float:
    """Return the time of a pass over six tokens ÷ over one, for one request."""
    return device_s(report, aim["shape"], tokens=6) / device_s(report, aim["shape"])


def batch_share(report: Report, aim: Mapping[str, Any]) -> float:
    """Return the time of a pass for one request ÷ for 32."""
    return device_s(report, aim["shape"]) / device_s(report, aim["shape"], requests=32)


def host_ms(report: Report, aim: Mapping[str, Any]) -> float:
    """Return the milliseconds of SmolLM2's rounds beyond the pass of its shape on the device."""
    on_device = device_s(report, "135m", requests=aim["requests"])
    return 1e3 * (float(report["answers"][aim["answer"]]) - on_device)


def start_s(report: Report, aim: Mapping[str, Any]) -> float:
    """Return the seconds from loaded weights to the first token, in a fresh process."""
    start = report["starts"][aim["start"]]
    return float(start["first_token_s"]) - float(start["loaded_s"])


def num_rows_different(report: Report, _aim: Mapping[str, Any]) -> float:
    return float(sum(shape["num_rows_different"] for shape in report["shapes"]))


def drafted_share(report: Report, _aim: Mapping[str, Any]) -> float:
    """Return the time of a token by its passes on the device ÷ the measured time, at the fastest
    depth, with as many tokens per round as were measured."""
    best = min(report["oracle"]["draft"]["runs"], key=lambda run: float(run["token_s"]))
    depth = best["depth"]
    seconds = device_s(report, "3b", tokens=depth + 1) + depth * device_s(report, "1b")
    return float(seconds / best["tokens_per_round"] / best["token_s"])


FIGURES: Final[Mapping[str, Callable[[Report, Mapping[str, Any]], float]]] = {
    figure.__name__: figure
    for figure in (
        pass_ms,
        verify_ratio,
        batch_share,
        host_ms,
        start_s,
        num_rows_different,
        drafted_share,
    )
}
