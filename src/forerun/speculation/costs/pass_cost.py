"""What a target pass costs by its number of tokens: measured at start, corrected while running."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from statistics import median
from typing import Final, TypeAlias

# A pass may be slow by accident (another process, a page fault), so a surprise counts at most this
# much, in log seconds.
MOST_SURPRISE: Final = 0.3
_SPEED_RATE: Final = 0.2
_SHAPE_RATE: Final = 0.15  # for a size that was hardly seen
_LEAST_SHAPE_RATE: Final = 0.03
_NUM_AGREEING: Final = 3  # large surprises in a row that are no accident
_SHARE_RATE: Final = 0.05
_KEY_RATE: Final = 0.4
_LEAST_KEY: Final = 1e-9  # of a plain pass, so that no price is stuck at 0
_PRECISION: Final = 0.02  # relative error that calibration allows for each size
_EACH_UP_TO: Final = 8  # tokens: up to here, a size that is met often gets a point of its own
_OFTEN: Final = 16  # passes
_HIDDEN: Final = 1e-9  # log seconds

# The sums of context tokens that the requests' first rows attend to, and that their guesses do.
Keys: TypeAlias = tuple[float, float]
NO_KEYS: Final[Keys] = (0.0, 0.0)


def clipped(surprise: float) -> float:
    return max(-MOST_SURPRISE, min(MOST_SURPRISE, surprise))


@dataclass(slots=True, eq=False)
class _Point:
    """What is known of one size of a pass."""

    log_seconds: float  # at calibration's speed
    is_measured: bool = True  # by calibration or by a pass
    share: float = 0.0  # of recent passes that were near this size
    streak: int = 0  # large surprises in a row, with their sign
    num_seen: int = 0

    def correct(self, surprise: float, weight: float) -> None:
        """Move the point by a part of `surprise`, and hardly at all if nearly all recent passes had
        this size: a machine that slows down then says nothing about how sizes compare."""
        self.log_seconds += self._rate(surprise) * weight * (1 - self.share) * surprise

    def _rate(self, surprise: float) -> float:
        """Return the rate of correction: low for a size that was seen often, unless several large
        surprises in a row have the same sign."""
        if abs(surprise) < MOST_SURPRISE:  # it was clipped to this
            self.streak = 0
        elif surprise > 0:
            self.streak = max(self.streak, 0) + 1
        else:
            self.streak = min(self.streak, 0) - 1
        self.num_seen = 0 if abs(self.streak) >= _NUM_AGREEING else self.num_seen + 1
        usual = max(_LEAST_SHAPE_RATE, _SHAPE_RATE / (1 + self.num_seen / 8))
        return min(1.0, usual * max(1, abs(self.streak)))


class PassCost:
    """Seconds of a pass over n tokens = speed · shape(n).

    `speed` is that of the machine at present: every observed pass corrects it quickly. `shape` is
    what decisions depend on: straight lines between sizes, never falling, corrected slowly.

    Both are for an empty context. Each token of context adds `per_key[0]` to a request's first row
    and `per_key[1]` to each further row, which finds the keys in the processor's caches. These are
    corrected like the shape, in proportion to their share of a pass.
    """

    def __init__(self, points: Iterable[tuple[int, float]]) -> None:
        self.per_key = 0.0, 0.0  # seconds, at calibration's speed
        ordered = sorted(points)
        self._sizes = [size for size, _ in ordered]
        assert ordered, "a pass cost needs at least one size"
        assert self._sizes[0] >= 1, ordered
        assert len(set(self._sizes)) == len(ordered), ordered
        assert all(seconds > 0 for _, seconds in ordered), ordered
        self._points = [_Point(math.log(seconds)) for _, seconds in ordered]
        self._num_passes = 0
        self._met: Counter[int] = Counter()  # passes of small sizes without a point
        self._log_speed, self.speed = 0.0, 1.0  # present seconds per second at calibration
        self._shape: list[float] = []  # seconds by size, at calibration's speed
        self._least_slope: float | None = None  # of `_shape`, computed when needed
        self._seen: tuple[float, tuple[tuple[int, float], ...]]  # a copy for other threads
        self._refresh()

    @classmethod
    def calibrate(
        cls,
        measure: Callable[[int], float],
        sizes: Sequence[int],
        num_repeats: int = 5,
        max_repeats: int = 60,
    ) -> PassCost:
        """Calibrate with `measure(n)`, which runs a pass over n tokens and returns its seconds.

        Sizes alternate, so that a slow moment of the machine does not fall on one of them alone;
        the first round only warms up. On a noisy machine there are more rounds, until the medians
        are precise.
        """

        def measure_all() -> list[float]:
            return [measure(size) for size in sizes]

        measure_all()
        rounds = [measure_all() for _ in range(num_repeats)]
        while len(rounds) < max_repeats and not all(map(_is_known, zip(*rounds, strict=True))):
            rounds.append(measure_all())
        columns = zip(*rounds, strict=True)
        return cls((n, median(column)) for n, column in zip(sizes, columns, strict=True))

    @property
    def points(self) -> tuple[tuple[int, float], ...]:
        """(size, seconds) of each point; safe to read while another thread calls `observe`."""
        speed, curve = self._seen
        return tuple((size, speed * seconds) for size, seconds in curve)

    def seconds(self, num_tokens: int) -> float:
        """Return the seconds of a pass; beyond the last size the last slope continues."""
        sizes, shape = self._sizes, self._shape
        right = bisect_left(sizes, num_tokens)
        if right < len(sizes) and sizes[right] == num_tokens:
            return self.speed * shape[right]
        if len(sizes) == 1 or right == 0:
            return self.speed * shape[0]
        right = min(right, len(sizes) - 1)
        slope = (shape[right] - shape[right - 1]) / (sizes[right] - sizes[right - 1])
        return self.speed * (shape[right - 1] + slope * (num_tokens - sizes[right - 1]))

    def seconds_from(self, first: int, num: int) -> list[float]:
        """Return `seconds` of `first`, `first` + 1, … tokens, `num` in all, in one walk."""
        sizes, last, seconds = self._sizes, len(self._sizes) - 1, list[float]()
        end, start = first + num, self.seconds(first)
        while first < end:
            right = bisect_left(sizes, first + 1)
            stop = end if right > last else min(end, sizes[right])
            after = self.seconds(stop)
            slope = (after - start) / (stop - first)
            seconds += [start + slope * step for step in range(stop - first)]
            first, start = stop, after
        return seconds

    @property
    def least_slope(self) -> float:
        """The least seconds that one more token adds, at any size."""
        if self._least_slope is None:
            runs = pairwise(zip(self._sizes, self._shape, strict=True))
            slopes = [(high - low) / (after - before) for (before, low), (after, high) in runs]
            self._least_slope = min(slopes, default=0.0)
        return self.speed * self._least_slope

    def context_seconds(self, keys: Keys) -> float:
        """Return the seconds that these tokens of context add to a pass."""
        first, further = self.per_key
        return self.speed * (first * keys[0] + further * keys[1])

    def observe(
        self, num_tokens: int, seconds: float, num_passes: int = 1, keys: Keys = NO_KEYS
    ) -> None:
        """Learn that a pass over `num_tokens` took `seconds`, or `num_passes` did on median."""
        while num_tokens > self._sizes[-1]:
            self._add(2 * self._sizes[-1], is_measured=False)
        if num_tokens <= _EACH_UP_TO and num_tokens not in self._sizes:
            self._met[num_tokens] += num_passes
            if self._met[num_tokens] >= _OFTEN:
                self._add(num_tokens)
        empty = self.seconds(num_tokens)
        known = empty + self.context_seconds(keys)
        surprise = math.log(max(seconds, 1e-9) / known)
        near = self._neighbours(num_tokens)
        self._count(near, num_passes)
        if any(keys) and abs(surprise) < MOST_SURPRISE:  # larger ones come from the machine
            self._correct_keys(near, keys, surprise / known)
        if surprise < 0 and any(self._is_hidden(point) for point, _ in near):
            return
        new = [point for point, _ in near if not point.is_measured]
        for point in new:  # this is the first pass near this size, so it is all that is known
            point.log_seconds += surprise
            point.is_measured = True
        if not new:
            for point, weight in near:
                point.correct(clipped(surprise), weight * empty / known)
            self._log_speed += (1 - (1 - _SPEED_RATE) ** num_passes) * clipped(surprise)
        self._refresh()

    def _correct_keys(
        self, near: Iterable[tuple[_Point, float]], keys: Keys, surprise: float
    ) -> None:
        """Correct the prices of context by `surprise`, which is per second of the pass. As for
        points, hardly at all if nearly all recent passes had this size."""
        rate = _KEY_RATE * sum(weight * (1 - point.share) for point, weight in near) * self.speed
        least = _LEAST_KEY * self._shape[0]
        first, further = (
            max(least, per_key) * math.exp(rate * per_key * num * surprise)
            for per_key, num in zip(self.per_key, keys, strict=True)
        )
        self.per_key = first, further

    def _add(self, size: int, *, is_measured: bool = True) -> None:
        """Add a point for a size, on the present lines until passes near it are observed. It may
        lie off the lines: kernels are not equally fast for odd and even numbers of rows, say."""
        seconds, idx = self.seconds(size) / self.speed, bisect_left(self._sizes, size)
        share = 0.0
        if is_measured:  # until here its passes counted for the points on either side
            near = self._neighbours(size)
            share = min(point.share / weight for point, weight in near)
            for point, weight in near:
                point.share -= weight * share
        self._sizes.insert(idx, size)
        self._points.insert(idx, _Point(math.log(seconds), is_measured, share))
        self._shape.insert(idx, seconds)

    def _is_hidden(self, point: _Point) -> bool:
        """Whether a point lies below that of a smaller size. It is then taken to cost as much as
        that, so it is no news that its passes are faster."""
        shown = self._shape[self._points.index(point)]
        return point.log_seconds < math.log(shown) - _HIDDEN

    def _neighbours(self, num_tokens: int) -> list[tuple[_Point, float]]:
        """Return the points on either side of a size, with weights by how near they are."""
        right = bisect_left(self._sizes, num_tokens)
        if right == 0 or self._sizes[right] == num_tokens:
            return [(self._points[right], 1.0)]
        low, high = self._sizes[right - 1], self._sizes[right]
        share = (num_tokens - low) / (high - low)
        return [(self._points[right - 1], 1 - share), (self._points[right], share)]

    def _count(self, near: Iterable[tuple[_Point, float]], num_passes: int) -> None:
        self._num_passes += num_passes
        rate = max(1 - (1 - _SHARE_RATE) ** num_passes, num_passes / self._num_passes)
        for point in self._points:
            point.share *= 1 - rate
        for point, weight in near:
            point.share += rate * weight

    def _refresh(self) -> None:
        """Compute the curve anew after its speed or its points have moved."""
        self.speed = math.exp(self._log_speed)
        self._shape = list(accumulate([math.exp(p.log_seconds) for p in self._points], max))
        self._seen = self.speed, tuple(zip(self._sizes, self._shape, strict=True))
        self._least_slope = None


def _is_known(seconds: Sequence[float]) -> bool:
    """Whether the median's standard error is small: 1.25 σ / √n, with σ from the middle half."""
    ordered, quarter = sorted(seconds), len(seconds) // 4
    sigma = (ordered[-1 - quarter] - ordered[quarter]) / 1.35
    return 1.25 * sigma <= _PRECISION * median(ordered) * math.sqrt(len(ordered))
