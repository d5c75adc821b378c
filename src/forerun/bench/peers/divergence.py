"""Where a peer's greedy text first differs from ours, and how close the choice was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from forerun.engine import LLM
from forerun.types import SamplingParams

_NUM_SHOWN: Final = 64


@dataclass(frozen=True)
class Divergence:
    """At output position `at` Forerun chose `ours`, and the peer `theirs`.

    `margin` is our log-probability of `ours` less that of `theirs`: near 0, rounding decides. None
    if `theirs` is not among our best tokens.
    """

    workload: str
    prompt: str
    contender: str
    at: int
    ours: str
    theirs: str
    margin: float | None


def first_difference(ours: Sequence[int], theirs: Sequence[int]) -> int | None:
    """Return the first index at which both have a token and the tokens differ."""
    return next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), None)


def before_end(tokens: Sequence[int], ends: Sequence[int]) -> Sequence[int]:
    """Drop a final end token: peers continue where we stop, and llama.cpp never returns one."""
    return tokens[:-1] if tokens and tokens[-1] in ends else tokens


def margin_at(llm: LLM, prefix: Sequence[int], ours: int, theirs: int) -> float | None:
    """Return the margin after `prefix`, from one token of plain decoding."""
    params = SamplingParams(temperature=0, max_tokens=1, logprobs=_NUM_SHOWN)
    shown = llm.generate(list(prefix), params)[0].outputs[0].logprobs
    assert shown is not None, "log-probabilities were asked for"
    if ours not in shown[0] or theirs not in shown[0]:
        return None
    return shown[0][ours] - shown[0][theirs]
