"""What a round costs here and now, in seconds that others measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import Final

from forerun.planning.cost_curve import CALIBRATION_SIZES, CostCurve
from forerun.planning.draft_cost import DraftCost

# A drafter nobody measured is taken to cost this share of a plain pass per level.
_UNMEASURED: Final = 0.1


class CostModel:
    """The target's curve, each drafter's cost, and the rest of a round: planning, verdicts,
    commit. A busy machine slows all of them alike, so drafters and the rest are kept in seconds at
    calibration and read through the curve's speed."""

    def __init__(self, target: CostCurve) -> None:
        self.target = target
        self._rest = DraftCost(0.0, 0.0)
        self._drafters: dict[str, DraftCost] = {}

    @classmethod
    def calibrate(
        cls,
        measure: Callable[[int], float],
        sizes: Sequence[int] = CALIBRATION_SIZES,
        num_repeats: int = 5,
        max_repeats: int = 60,
    ) -> CostModel:
        return cls(CostCurve.calibrate(measure, sizes, num_repeats, max_repeats))

    def calibrate_drafter(
        self,
        drafter: str,
        measure: Callable[[int], float],
        max_depth: int,
        num_repeats: int = 5,
    ) -> None:
        """`measure(depth)` asks the drafter once, for one request, and returns the seconds."""
        measure(max_depth)
        turns = [(measure(1), measure(max_depth)) for _ in range(num_repeats)]
        shallow, deep = (median(column) for column in zip(*turns, strict=True))
        per_level = max(0.0, deep - shallow) / max(1, max_depth - 1)
        per_request = max(0.0, shallow - per_level)
        self._drafters[drafter] = DraftCost(per_request, per_level)

    def pass_seconds(self, num_tokens: int) -> float:
        return self.target.seconds(num_tokens)

    def round_seconds(self, num_requests: int, num_others: int, guesses: range) -> list[float]:
        """Of rounds with so many guesses, drafting aside; `num_others` are prompts' tokens."""
        passes = self.target.seconds_from(num_requests + num_others + guesses.start, len(guesses))
        certain, each = self._rest.seconds(num_requests, 0), self._rest.per_level
        certain, each = certain * self.target.speed, each * self.target.speed
        return [s + certain + each * num for s, num in zip(passes, guesses, strict=True)]

    def least_price(self, num_requests: int, num_others: int) -> float:
        """What one more guess adds to a round where it adds least, in tokens that a plain round
        brings in that time. A guess that brings less is never worth it."""
        speed, rest = self.target.speed, self._rest
        plain = self.target.seconds(num_requests + num_others)
        plain += speed * rest.seconds(num_requests, 0)
        return num_requests * (self.target.least_slope + speed * rest.per_level) / plain

    def draft_seconds(self, drafter: str, num_requests: int, level_sizes: Sequence[int]) -> float:
        """One answer for `num_requests` at once; `level_sizes` counts its guesses by depth."""
        levels = self._levels(level_sizes)
        return self.target.speed * self._of(drafter).seconds(num_requests, levels)

    def usual_draft_seconds(self, drafter: str, num_requests: int) -> float:
        """What the drafter's recent answers took, however many guesses they had."""
        return self.target.speed * self._of(drafter).usual_seconds * num_requests

    def observe_pass(self, num_tokens: int, seconds: float) -> float:
        """Returns the surprise in log seconds."""
        return self.target.observe(num_tokens, seconds)

    def observe_rest(self, num_requests: int, num_guesses: int, seconds: float) -> None:
        """What a round took besides its pass and its drafters."""
        if num_requests:
            self._rest.observe(num_requests, num_guesses, max(0.0, seconds) / self.target.speed)

    def is_known(self, drafter: str) -> bool:
        """Calibrated, or heard often enough."""
        cost = self._drafters.get(drafter)
        return cost is not None and (cost.is_calibrated or not cost.is_new)

    def observe_draft(
        self, drafter: str, num_requests: int, level_sizes: Sequence[int], seconds: float
    ) -> None:
        levels, seconds = self._levels(level_sizes), seconds / self.target.speed
        if drafter not in self._drafters:
            self._drafters[drafter] = DraftCost.of_answer(num_requests, levels, seconds)
        self._drafters[drafter].observe(num_requests, levels, seconds)

    def _levels(self, level_sizes: Sequence[int]) -> float:
        """Levels of one guess that would cost as much as these."""
        if not level_sizes:
            return 0.0
        if min(level_sizes) == max(level_sizes):
            total = len(level_sizes) * self.target.seconds(level_sizes[0])
        else:
            total = sum(map(self.target.seconds, level_sizes))
        return total / self.target.seconds(1)

    def _of(self, drafter: str) -> DraftCost:
        if drafter in self._drafters:
            return self._drafters[drafter]
        plain = self.target.seconds(1) / self.target.speed
        return DraftCost(0.0, _UNMEASURED * plain)
