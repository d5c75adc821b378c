"""How often something holds, when that may change at any moment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

# Trials that each memory looks back on, longest first. Which is right depends on the text.
MEMORIES: Final = (160, 32, 6)
_SHARE: Final = 0.03  # weight handed round per trial, so that no memory is ever written off


class Rate(Protocol):
    """Something that has a rate."""

    @property
    def rate(self) -> float: ...


class FixedRate:
    """A rate that nobody has observed: where everything starts."""

    def __init__(self, rate: float) -> None:
        self.rate = rate


class HitRate:
    """A mixture of memories of different lengths, each weighted by how well it has predicted.

    A steady rate is tracked by the long memory with little noise; after a sudden change the short
    one predicts better, takes the weight within a few trials, and the estimate follows. Each
    memory starts from the next longer one, and the longest from the prior.
    """

    def __init__(
        self, prior: Rate, strength: float = 2.0, memories: Sequence[int] = MEMORIES
    ) -> None:
        self._prior = prior
        self._strength = strength  # what a memory starts from counts as this many trials
        self._kept = [1 - 1 / memory for memory in memories]
        self._hits = [0.0] * len(memories)
        self._trials = [0.0] * len(memories)
        self._weights = [1 / len(memories)] * len(memories)

    @property
    def rate(self) -> float:
        rate, strength, mixed = self._prior.rate, self._strength, 0.0
        for hits, trials, weight in zip(self._hits, self._trials, self._weights, strict=True):
            rate = (strength * rate + hits) / (strength + trials)
            mixed += weight * rate
        return mixed

    def observe(self, hit: bool) -> None:
        rates = self._rates()
        likely = [w * (p if hit else 1 - p) for w, p in zip(self._weights, rates, strict=True)]
        total, even = sum(likely), _SHARE / len(likely)
        self._weights = [(1 - _SHARE) * weight / total + even for weight in likely]
        for idx, kept in enumerate(self._kept):
            self._hits[idx] = self._hits[idx] * kept + hit
            self._trials[idx] = self._trials[idx] * kept + 1

    def age(self) -> None:
        """A round went by without a trial. Memories fade at their own pace, so that after a bad
        stretch nobody looked beyond, what was known before it returns."""
        for idx, kept in enumerate(self._kept):
            self._hits[idx] *= kept
            self._trials[idx] *= kept

    def _rates(self) -> list[float]:
        rate, strength, rates = self._prior.rate, self._strength, []
        for hits, trials in zip(self._hits, self._trials, strict=True):
            rate = (strength * rate + hits) / (strength + trials)
            rates.append(rate)
        return rates
