"""What a target pass costs by the number of its tokens: measured, then corrected."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, pairwise
from statistics import median
from typing import Final

from forerun.errors import InvalidOption
from forerun.planning.ranges import check_count, check_positive

# One pass may be slow for reasons of its own (another process, a page fault), so a surprise
# counts at most this much, in log seconds.
MOST_SURPRISE: Final = 0.3
_SPEED_RATE: Final = 0.2
_SHAPE_RATE: Final = 0.15  # for a size that was hardly seen
_LEAST_SHAPE_RATE: Final = 0.03
_NUM_AGREEING: Final = 3  # large surprises that make a new fact
_SHARE_RATE: Final = 0.05
_PRECISION: Final = 0.02  # to which calibration wants to know each size

CALIBRATION_SIZES: Final = (1, 2, 3, 4, 6, 9, 16, 32)


def _is_known(seconds: Sequence[float]) -> bool:
    """Whether the median's standard error is small: 1.25 σ / √n, with σ from the middle half."""
    ordered, quarter = sorted(seconds), len(seconds) // 4
    sigma = (ordered[-1 - quarter] - ordered[quarter]) / 1.35
    return 1.25 * sigma <= _PRECISION * median(ordered) * math.sqrt(len(ordered))


def clipped(surprise: float) -> float:
    return max(-MOST_SURPRISE, min(MOST_SURPRISE, surprise))


class CostCurve:
    """Seconds of a pass over n tokens = speed · shape(n).

    `speed` is the machine's, here and now: every pass observed corrects it quickly. `shape` is
    what decisions rest on: straight lines between sizes, never falling. A size corrects its own
    point only as far as it is *not* the size that nearly all passes have: a machine that
    slows down under passes of one size says nothing about how sizes compare.
    """

    def __init__(self, points: Iterable[tuple[int, float]]) -> None:
        ordered = sorted(points)
        self._sizes = [check_count(size, "a pass size") for size, _ in ordered]
        if not ordered or len(set(self._sizes)) < len(ordered):
            raise InvalidOption("a cost curve needs at least one size, each given once.")
        seconds = [check_positive(cost, f"the seconds of {n} tokens") for n, cost in ordered]
        self._log_shape = [math.log(cost) for cost in seconds]
        self._shares = [0.0] * len(ordered)  # of recent passes, near each size
        self._streaks = [0] * len(ordered)  # large surprises in a row, by their sign
        self._num_seen = [0] * len(ordered)
        self._num_passes = 0
        self._unseen: set[int] = set()  # sizes that were neither calibrated nor met in a pass
        self._log_speed, self._speed = 0.0, 1.0
        self._raw_shape = seconds
        self._shape: list[float] = []
        self._least_slope: float | None = None  # of the shape
        self._refresh(range(len(ordered)))

    @classmethod
    def calibrate(
        cls,
        measure: Callable[[int], float],
        sizes: Sequence[int] = CALIBRATION_SIZES,
        num_repeats: int = 5,
        max_repeats: int = 60,
    ) -> CostCurve:
        """`measure(n)` runs a pass over n tokens and returns its seconds.

        Sizes take turns, so that a slow moment of the machine does not fall on one of them; the
        first turn only warms up. On a restless machine turns go on until the medians are known.
        """

        def turn() -> list[float]:
            return [measure(size) for size in sizes]

        turn()
        turns = [turn() for _ in range(num_repeats)]
        while len(turns) < max_repeats and not all(map(_is_known, zip(*turns, strict=True))):
            turns.append(turn())
        columns = zip(*turns, strict=True)
        return cls((n, median(column)) for n, column in zip(sizes, columns, strict=True))

    @property
    def points(self) -> tuple[tuple[int, float], ...]:
        return tuple((size, self.seconds(size)) for size in self._sizes)

    @property
    def speed(self) -> float:
        """Seconds now per second at calibration."""
        return self._speed

    def seconds(self, num_tokens: int) -> float:
        """Beyond the last size the last slope goes on."""
        sizes, shape = self._sizes, self._shape
        right = bisect_left(sizes, num_tokens)
        if right < len(sizes) and sizes[right] == num_tokens:
            return self._speed * shape[right]
        if len(sizes) == 1 or right == 0:
            return self._speed * shape[0]
        right = min(right, len(sizes) - 1)
        slope = (shape[right] - shape[right - 1]) / (sizes[right] - sizes[right - 1])
        return self._speed * (shape[right - 1] + slope * (num_tokens - sizes[right - 1]))

    def seconds_from(self, first: int, num: int) -> list[float]:
        """`seconds` of `first`, `first` + 1, … tokens: one walk along the lines."""
        sizes, last, seconds = self._sizes, len(self._sizes) - 1, list[float]()
        end = first + num
        while first < end:
            right = bisect_left(sizes, first + 1)
            stop = end if right > last else min(end, sizes[right])
            start = self.seconds(first)
            slope = (self.seconds(stop) - start) / (stop - first)
            seconds += [start + slope * step for step in range(stop - first)]
            first = stop
        return seconds

    @property
    def least_slope(self) -> float:
        """Seconds that one more token adds, where it adds least."""
        if self._least_slope is None:
            runs = pairwise(zip(self._sizes, self._shape, strict=True))
            slopes = ((high - low) / (after - before) for (before, low), (after, high) in runs)
            self._least_slope = min(slopes, default=0.0)
        return self._speed * self._least_slope

    def observe(self, num_tokens: int, seconds: float) -> float:
        """A pass over `num_tokens` took `seconds`; returns the surprise in log seconds."""
        while num_tokens > self._sizes[-1]:
            self._append(2 * self._sizes[-1])
        surprise = math.log(max(seconds, 1e-9) / self.seconds(num_tokens))
        near = self._neighbours(num_tokens)
        self._count(near)
        unseen = self._unseen.intersection(idx for idx, _ in near)
        if unseen:
            self._set(unseen, surprise)
        else:
            self._correct(near, clipped(surprise))
        self._refresh(idx for idx, _ in near)
        return surprise

    def _correct(self, near: Iterable[tuple[int, float]], surprise: float) -> None:
        for idx, weight in near:
            rate = self._shape_rate(idx, surprise) * weight * (1 - self._shares[idx])
            self._log_shape[idx] += rate * surprise
        self._log_speed += _SPEED_RATE * surprise

    def _set(self, unseen: Iterable[int], surprise: float) -> None:
        """All that is known of a size nobody calibrated is its first pass."""
        for idx in unseen:
            self._log_shape[idx] += surprise
        self._unseen.difference_update(unseen)

    def _append(self, size: int) -> None:
        """One more size, where the last slope leads until a pass near it is seen."""
        seconds = self.seconds(size) / self._speed
        self._unseen.add(len(self._sizes))
        self._sizes.append(size)
        self._log_shape.append(math.log(seconds))
        self._raw_shape.append(seconds)
        self._shape.append(seconds)
        self._shares.append(0.0)
        self._streaks.append(0)
        self._num_seen.append(0)

    def _shape_rate(self, idx: int, surprise: float) -> float:
        """A size seen often moves slowly, unless large surprises come in a row and agree."""
        streak = self._streaks[idx]
        if abs(surprise) < MOST_SURPRISE:  # it comes clipped
            streak = 0
        elif surprise > 0:
            streak = max(streak, 0) + 1
        else:
            streak = min(streak, 0) - 1
        self._streaks[idx] = streak
        self._num_seen[idx] = 0 if abs(streak) >= _NUM_AGREEING else self._num_seen[idx] + 1
        usual = max(_LEAST_SHAPE_RATE, _SHAPE_RATE / (1 + self._num_seen[idx] / 8))
        return min(1.0, usual * max(1, abs(streak)))

    def _neighbours(self, num_tokens: int) -> list[tuple[int, float]]:
        right = bisect_left(self._sizes, num_tokens)
        if right == 0 or self._sizes[right] == num_tokens:
            return [(right, 1.0)]
        low, high = self._sizes[right - 1], self._sizes[right]
        share = (num_tokens - low) / (high - low)
        return [(right - 1, 1 - share), (right, share)]

    def _count(self, near: Iterable[tuple[int, float]]) -> None:
        self._num_passes += 1
        rate = max(_SHARE_RATE, 1 / self._num_passes)
        self._shares = [share * (1 - rate) for share in self._shares]
        for idx, weight in near:
            self._shares[idx] += rate * weight

    def _refresh(self, changed: Iterable[int]) -> None:
        """The curve after its speed and the points `changed` have moved."""
        self._speed = math.exp(self._log_speed)
        for idx in changed:
            self._raw_shape[idx] = math.exp(self._log_shape[idx])
        self._shape = list(accumulate(self._raw_shape, max))
        self._least_slope = None
