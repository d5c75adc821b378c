"""Timing a trained head's answers on this machine, before the first request."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from forerun.drafters import NOBODY, Budget, TappedDrafter
from forerun.interrupts import safe_point
from forerun.models.llama import LlamaModel
from forerun.sampling import Noise
from forerun.speculation.costs.calibration import pass_timer
from forerun.speculation.costs.draft_cost import DraftCost
from forerun.types import SamplingParams

_NUM_TIMED: Final = 8
_NUM_READ: Final = 64  # rows


@dataclass
class _Text:
    """A request of arbitrary tokens, as drafters see it."""

    tokens: list[int] = field(default_factory=lambda: [0, 0])
    id: int = NOBODY
    output: Sequence[int] = ()
    params: SamplingParams = field(default_factory=lambda: SamplingParams(temperature=0))
    noise: Noise = field(default_factory=lambda: Noise(0))
    round_idx: int = 0
    cache_salt: str | None = None
    prediction: Sequence[int] = ()
    grammar: None = None

    @property
    def prompt(self) -> Sequence[int]:
        return self.tokens


def timed_head(drafter: TappedDrafter, model: LlamaModel, depth: int) -> DraftCost:
    """Return what a head's answer for one request costs: the first guess, and each further one.

    This also compiles and records what the head needs, before the first request comes.
    """
    text = _Text()
    drafter.begin(text)
    try:
        _told(drafter, text, model.config.hidden_size)
        one, deep = (_seconds(drafter, text, model, num) for num in (1, depth))
        read = 0.0 if model.kernels.begins_early else _reading_seconds(drafter, text, model)
    finally:
        drafter.end(text)
    level = max(0.0, deep - one) / max(1, depth - 1)
    cost = DraftCost(max(0.0, one - level), level)
    cost.per_row = max(0.0, read - one) / _NUM_READ
    return cost


def _reading_seconds(drafter: TappedDrafter, text: _Text, model: LlamaModel) -> float:
    """Time an answer after a piece of text that the head has to read first; the faster of two."""
    seconds = []
    for _ in range(2):
        safe_point()
        text.tokens += [0] * _NUM_READ
        _told(drafter, text, model.config.hidden_size, _NUM_READ)
        began = time.perf_counter()
        drafter.propose([text], [Budget(1)])
        seconds.append(time.perf_counter() - began)
        text.tokens.append(0)
        _told(drafter, text, model.config.hidden_size)
    return min(seconds)


def _seconds(drafter: TappedDrafter, text: _Text, model: LlamaModel, depth: int) -> float:
    """Time answers of `depth` guesses in rounds that accept none; return the fastest.

    Each answer follows a pass of the target, which leaves little of the head in the processor's
    caches. The first two, in which kernels are recorded and first replayed, do not count. The
    fastest counts since an answer may be slow by accident, but never fast.
    """
    seconds, run_target = [], pass_timer(model, 1)
    for _ in range(2 + _NUM_TIMED):
        safe_point()
        run_target(1)
        began = time.perf_counter()
        drafter.propose([text], [Budget(depth)])
        seconds.append(time.perf_counter() - began)
        text.tokens.append(0)
        _told(drafter, text, model.config.hidden_size)  # nothing is accepted, nothing learnt
    return min(seconds[2:])


def _told(drafter: TappedDrafter, text: _Text, hidden_size: int, num: int = 1) -> None:
    """Give the head hidden states of the last token but one, and of `num` - 1 tokens before it."""
    rows = np.zeros((num, hidden_size), np.float32)
    drafter.tapped(text, len(text.tokens) - 1 - num, dict.fromkeys(drafter.layers, rows))
