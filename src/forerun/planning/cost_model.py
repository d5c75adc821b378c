"""What a round costs here and now, in seconds that others measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from statistics import median
from typing import Final

from forerun.planning.cost_curve import CALIBRATION_SIZES, CostCurve
from forerun.planning.draft_cost import DraftCost

# A drafter nobody measured is taken to cost this share of a plain pass per level.
_UNMEASURED: Final = 0.1


class CostModel:
    """The target's curve and each drafter's cost. A busy machine slows all of them alike, so
    drafters are kept in seconds at calibration and read through the curve's speed."""

    def __init__(self, target: CostCurve) -> None:
        self.target = target
        self._drafters: dict[str, DraftCost] = {}

    @classmethod
    def calibrate(
        cls,
        measure: Callable[[int], float],
        sizes: Sequence[int] = CALIBRATION_SIZES,
        num_repeats: int = 5,
    ) -> CostModel:
        return cls(CostCurve.calibrate(measure, sizes, num_repeats))

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

    def passes_seconds(self, first: int, num: int) -> list[float]:
        """Of passes over `first`, `first` + 1, … tokens."""
        return self.target.seconds_from(first, num)

    @property
    def least_seconds_per_token(self) -> float:
        """What one more token adds to a pass, where it adds least."""
        return self.target.least_slope

    def draft_seconds(self, drafter: str, num_requests: int, level_sizes: Sequence[int]) -> float:
        """One answer for `num_requests` at once; `level_sizes` counts its guesses by depth."""
        levels = self._levels(level_sizes)
        return self.target.speed * self._of(drafter).seconds(num_requests, levels)

    def observe_pass(self, num_tokens: int, seconds: float) -> float:
        """Returns the surprise in log seconds."""
        return self.target.observe(num_tokens, seconds)

    def observe_draft(
        self, drafter: str, num_requests: int, level_sizes: Sequence[int], seconds: float
    ) -> None:
        levels = self._levels(level_sizes)
        self._of(drafter).observe(num_requests, levels, seconds / self.target.speed)

    def _levels(self, level_sizes: Sequence[int]) -> float:
        """Levels of one guess that would cost as much as these."""
        sizes = Counter(level_sizes)
        total = sum(num * self.target.seconds(size) for size, num in sizes.items())
        return total / self.target.seconds(1)

    def _of(self, drafter: str) -> DraftCost:
        if drafter not in self._drafters:
            plain = self.target.seconds(1) / self.target.speed
            self._drafters[drafter] = DraftCost(0.0, _UNMEASURED * plain)
        return self._drafters[drafter]
