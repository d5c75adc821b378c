"""v(γ): what a target pass over γ guesses and one more token costs, in plain passes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from forerun.errors import InvalidOption
from forerun.theory.ranges import (
    DEPTH_LIMIT,
    MOST_COST,
    check_cost,
    check_depth,
    check_positive,
)

_MOST_DIGITS: Final = 6  # of a depth in text


class VerifyCost(Protocol):
    """v(γ), with v(0) = 1 by definition."""

    @property
    def max_depth(self) -> int:
        """The largest γ for which v is known."""

    def at(self, depth: int) -> float: ...


@dataclass(frozen=True)
class LinearVerifyCost:
    """v(γ) = 1 + slope·γ: every guess adds the same share of a plain pass."""

    slope: float

    def __post_init__(self) -> None:
        check_cost(self.slope, "the slope of the verify cost")

    @property
    def max_depth(self) -> int:
        return DEPTH_LIMIT

    def at(self, depth: int) -> float:
        return 1 + self.slope * check_depth(depth)


# The paper's assumption (§3.3): checking guesses takes no longer than decoding one token.
FREE: Final = LinearVerifyCost(0.0)


@dataclass(frozen=True)
class MeasuredVerifyCost:
    """v(γ) through measured (depth, cost) points, with straight lines in between.

    Nothing is assumed beyond the last point: `at` raises there.
    """

    points: tuple[tuple[int, float], ...]  # ascending; (0, 1) is implied

    def __post_init__(self) -> None:
        points = _with_origin(self.points)
        object.__setattr__(self, "points", points)
        for depth, cost in points:
            check_depth(depth, "a measured depth")
            check_positive(cost, f"the verify cost at depth {depth}")
        depths = [depth for depth, _ in points]
        if len(set(depths)) != len(depths):
            raise InvalidOption("the verify cost names a depth twice; give each depth once.")
        if points[0] != (0, 1.0):
            raise InvalidOption("the verify cost at depth 0 is 1 by definition; leave it out.")

    @property
    def max_depth(self) -> int:
        return self.points[-1][0]

    def at(self, depth: int) -> float:
        if check_depth(depth) > self.max_depth:
            raise InvalidOption(
                f"the verify cost is measured up to depth {self.max_depth}, not {depth}; "
                f"measure further or ask for less depth."
            )
        right = bisect_left(self.points, (depth,))
        (high_depth, high), (low_depth, low) = self.points[right], self.points[max(right - 1, 0)]
        if depth == high_depth:
            return high
        share = (depth - low_depth) / (high_depth - low_depth)
        return low + share * (high - low)


def _with_origin(points: Iterable[tuple[int, float]]) -> tuple[tuple[int, float], ...]:
    given = tuple((depth, cost) for depth, cost in points)
    if not given:
        raise InvalidOption("the verify cost has no points; give at least one.")
    has_origin = any(depth == 0 for depth, _ in given)
    return tuple(sorted(given if has_origin else ((0, 1.0), *given)))


def parse_verify_cost(spec: str) -> VerifyCost:
    """Parse a user's v(γ).

    "0.05"            every guess adds 5 % of a plain pass
    "1.04,1.10,1.15"  measured v(1), v(2), v(3)
    "3:1.38,7:1.90"   measured at depths 3 and 7, straight lines in between
    """
    parts = [part.strip() for part in spec.split(",")]
    if len(parts) == 1 and ":" not in spec:
        return LinearVerifyCost(_number(spec, spec))
    if all(":" in part for part in parts):
        return MeasuredVerifyCost(tuple(_point(part, spec) for part in parts))
    return MeasuredVerifyCost(
        tuple((depth, _number(part, spec)) for depth, part in enumerate(parts, start=1))
    )


def _point(part: str, spec: str) -> tuple[int, float]:
    depth, _, cost = part.partition(":")
    if not depth.strip().isdecimal() or len(depth) > _MOST_DIGITS:
        raise _unreadable(spec)
    return int(depth), _number(cost, spec)


def _number(text: str, spec: str) -> float:
    try:
        found = float(text)
    except ValueError:
        raise _unreadable(spec) from None
    if found and not 1 / MOST_COST <= abs(found) <= MOST_COST:  # else sums and ratios overflow
        raise _unreadable(spec)
    return found


def _unreadable(spec: str) -> InvalidOption:
    return InvalidOption(
        f"cannot read the verify cost {spec!r}; give a slope such as 0.05, "
        f"values such as 1.04,1.10 or points such as 3:1.38,7:1.90."
    )
