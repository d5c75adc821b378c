"""Seconds as a sum of a share for each request and a share for each level, or each guess."""

from __future__ import annotations

import math
from typing import Final

from forerun.speculation.costs.pass_cost import MOST_SURPRISE

_KEPT: Final = 0.97  # weight that past observations keep with each new one
_LEAN: Final = 0.02  # weight of the present shares in the least squares
_USUAL_MEMORY: Final = 30  # answers
_MOST: Final = math.exp(MOST_SURPRISE)  # an answer counts for at most so many times the expected
_NUM_TRUSTING: Final = 3  # first observations, in which a much faster one replaces earlier ones


class DraftCost:
    """seconds = per_request · requests + per_level · levels, by decayed least squares.

    A draft model's level grows with the batch as the target's pass does; a lookup's levels cost
    next to nothing. Both shares stay 0 or more. An answer may be slow by accident, but never fast,
    so the effect of slow answers is limited.
    """

    def __init__(self, per_request: float, per_level: float, *, is_calibrated: bool = True) -> None:
        self.per_request = per_request
        self.per_level = per_level
        self.per_row = 0.0  # for each row of a text that the drafter reads before it guesses
        self.usual_seconds = per_request + per_level  # of recent answers, per request
        self._is_calibrated = is_calibrated
        self._num_observed = 0
        self._rr = self._ll = self._rl = self._ry = self._ly = 0.0  # the normal equations

    @classmethod
    def of_answer(cls, num_requests: int, num_levels: float, seconds: float) -> DraftCost:
        """Start from a single answer, assuming that a request costs as much as a level."""
        share = seconds / (num_requests + num_levels)
        return cls(share, share, is_calibrated=False)

    @property
    def is_known(self) -> bool:
        return self._is_calibrated or not self._is_new

    @property
    def _is_new(self) -> bool:
        """Whether all answers so far were early ones, which are slow since caches are cold."""
        return self._num_observed <= _NUM_TRUSTING

    def seconds(self, num_requests: int, num_levels: float) -> float:
        return self.per_request * num_requests + self.per_level * num_levels

    def observe(self, num_requests: int, num_levels: float, seconds: float) -> None:
        self._num_observed += 1
        expected = self.per_request * num_requests + self.per_level * num_levels
        if (self._num_observed > 1 or self._is_calibrated) and expected > 0:
            if self._is_new and seconds < expected / _MOST:
                self._forget(seconds / expected)
            else:
                seconds = min(max(seconds, expected / _MOST), expected * _MOST)
        self._note_usual(seconds / num_requests)
        self._rr = _KEPT * self._rr + num_requests**2
        self._ll = _KEPT * self._ll + num_levels**2
        self._rl = _KEPT * self._rl + num_requests * num_levels
        self._ry = _KEPT * self._ry + num_requests * seconds
        self._ly = _KEPT * self._ly + num_levels * seconds
        self._solve()

    def _note_usual(self, seconds: float) -> None:
        if self._num_observed == 1:
            self.usual_seconds = seconds
        elif self._is_new:
            self.usual_seconds = min(self.usual_seconds, seconds)
        else:
            self.usual_seconds += (seconds - self.usual_seconds) / _USUAL_MEMORY

    def _forget(self, scale: float) -> None:
        """Drop all observations so far, which were slow ones."""
        if not self._is_calibrated:
            self.per_request, self.per_level = scale * self.per_request, scale * self.per_level
        self._rr = self._ll = self._rl = self._ry = self._ly = 0.0

    def _solve(self) -> None:
        """Solve for both shares, with a small weight on the present ones, which decide if all
        answers had the same ratio of levels to requests."""
        lean = _LEAN * (self._rr + self._ll)
        rr, ll = self._rr + lean, self._ll + lean
        ry, ly = self._ry + lean * self.per_request, self._ly + lean * self.per_level
        determinant = rr * ll - self._rl**2
        per_request = (ry * ll - ly * self._rl) / determinant
        per_level = (ly * rr - ry * self._rl) / determinant
        if per_request < 0:
            per_request, per_level = 0.0, ly / ll
        elif per_level < 0:
            per_request, per_level = ry / rr, 0.0
        self.per_request, self.per_level = per_request, per_level
