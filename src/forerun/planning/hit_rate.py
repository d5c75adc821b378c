"""How often something holds, when that may change at any moment."""

from __future__ import annotations

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


class SteadyRate:
    """One long memory: what all requests of a drafter have in common, where none is in a hurry."""

    __slots__ = ("_hits", "_kept", "_prior", "_prior_rate", "_rate", "_strength", "_trials")

    def __init__(self, prior: Rate, strength: float, memory: int) -> None:
        self._prior = prior
        self._strength = strength
        self._kept = 1 - 1 / memory
        self._hits = self._trials = 0.0
        self._rate = self._prior_rate = -1.0

    @property
    def rate(self) -> float:
        prior_rate = self._prior.rate
        if prior_rate != self._prior_rate:
            strength = self._strength
            self._rate = (strength * prior_rate + self._hits) / (strength + self._trials)
            self._prior_rate = prior_rate
        return self._rate

    def observe(self, hit: bool) -> None:
        self._hits = self._hits * self._kept + hit
        self._trials = self._trials * self._kept + 1
        self._prior_rate = -1.0


class HitRate:
    """A mixture of three memories, each weighted by how well it has predicted.

    A steady rate is tracked by the long memory with little noise; after a sudden change the short
    one predicts better, takes the weight within a few trials, and the estimate follows. Each
    memory starts from the next longer one, and the longest from the prior.

    This runs for every guess of every request, so the three are written out: a loop over lists
    takes almost three times as long.
    """

    __slots__ = (
        "_hits",
        "_kept",
        "_prior",
        "_prior_rate",
        "_rate",
        "_rates",
        "_strength",
        "_trials",
        "_weights",
    )

    def __init__(
        self,
        prior: Rate,
        strength: float = 2.0,
        memories: tuple[int, int, int] = MEMORIES,
    ) -> None:
        self._prior = prior
        self._strength = strength  # what a memory starts from counts as this many trials
        long, middle, short = memories
        self._kept = (1 - 1 / long, 1 - 1 / middle, 1 - 1 / short)
        self._hits = self._trials = self._rates = (0.0, 0.0, 0.0)
        self._weights = (1 / 3, 1 / 3, 1 / 3)
        self._rate = self._prior_rate = -1.0  # as of the latest look at the prior

    @property
    def rate(self) -> float:
        prior_rate = self._prior.rate
        if prior_rate != self._prior_rate:
            self._refresh(prior_rate)
        return self._rate

    def observe(self, hit: bool) -> None:
        if self._prior_rate < 0:
            self._refresh(self._prior.rate)
        p1, p2, p3 = self._rates
        w1, w2, w3 = self._weights
        if not hit:
            p1, p2, p3 = 1 - p1, 1 - p2, 1 - p3
        w1, w2, w3 = w1 * p1, w2 * p2, w3 * p3
        scale = (1 - _SHARE) / (w1 + w2 + w3)
        self._weights = w1 * scale + _SHARE / 3, w2 * scale + _SHARE / 3, w3 * scale + _SHARE / 3
        self.age()
        n1, n2, n3 = self._trials
        self._trials = n1 + 1, n2 + 1, n3 + 1
        if hit:
            h1, h2, h3 = self._hits
            self._hits = h1 + 1, h2 + 1, h3 + 1

    def age(self) -> None:
        """A round went by without a trial. Memories fade at their own pace, so that after a bad
        stretch nobody looked beyond, what was known before it returns."""
        k1, k2, k3 = self._kept
        h1, h2, h3 = self._hits
        n1, n2, n3 = self._trials
        self._hits = h1 * k1, h2 * k2, h3 * k3
        self._trials = n1 * k1, n2 * k2, n3 * k3
        self._prior_rate = -1.0

    def _refresh(self, prior_rate: float) -> None:
        s = self._strength
        h1, h2, h3 = self._hits
        n1, n2, n3 = self._trials
        w1, w2, w3 = self._weights
        p1 = (s * prior_rate + h1) / (s + n1)
        p2 = (s * p1 + h2) / (s + n2)
        p3 = (s * p2 + h3) / (s + n3)
        self._rates = p1, p2, p3
        self._rate, self._prior_rate = w1 * p1 + w2 * p2 + w3 * p3, prior_rate
