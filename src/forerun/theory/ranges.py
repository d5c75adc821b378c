"""Which numbers the closed forms take; any other raises instead of giving nonsense."""

from __future__ import annotations

from typing import Final

from forerun.errors import InvalidOption
from forerun.option_checks import is_finite, is_whole

# Far beyond any useful depth, and small enough for exact arithmetic to stay fast.
DEPTH_LIMIT: Final = 256
MOST_COST: Final = 1e6  # in plain passes; sums and ratios of larger ones could overflow


def check_alpha(alpha: float) -> float:
    """Check an acceptance probability: a number in [0, 1]."""
    if not (is_finite(alpha) and 0 <= alpha <= 1):
        raise InvalidOption(f"alpha is {alpha!r}; give a probability between 0 and 1.")
    return float(alpha)


def check_cost(cost: float, name: str = "cost") -> float:
    """Check a cost relative to one plain target pass: a number between 0 and `MOST_COST`."""
    if not (is_finite(cost) and 0 <= cost <= MOST_COST):
        raise InvalidOption(f"{name} is {cost!r}; give a number from 0 to {MOST_COST:,.0f}.")
    return float(cost)


def check_positive(value: float, name: str) -> float:
    if not (is_finite(value) and value > 0):
        raise InvalidOption(f"{name} is {value!r}; give a finite number above 0.")
    return float(value)


def check_count(value: int, name: str, at_least: int = 1) -> int:
    if not (is_whole(value) and value >= at_least):
        raise InvalidOption(f"{name} is {value!r}; give a whole number, {at_least} or more.")
    return int(value)


def check_depth(depth: int, name: str = "depth") -> int:
    """Check a number of guesses per round: an integer between 0 and `DEPTH_LIMIT`."""
    if check_count(depth, name, at_least=0) > DEPTH_LIMIT:
        raise InvalidOption(f"{name} is {depth}; give at most {DEPTH_LIMIT}.")
    return int(depth)
