"""v(γ) as users give it."""

from __future__ import annotations

import math

import pytest

from forerun.errors import InvalidOption
from forerun.theory.verify_cost import (
    FREE,
    LinearVerifyCost,
    MeasuredVerifyCost,
    parse_verify_cost,
)


def test_a_number_is_a_slope() -> None:
    cost = parse_verify_cost("0.05")
    assert cost == LinearVerifyCost(0.05)
    assert [cost.at(depth) for depth in (0, 1, 4)] == pytest.approx([1, 1.05, 1.2])
    assert parse_verify_cost("0") == FREE


def test_a_list_holds_the_depths_from_1_on() -> None:
    cost = parse_verify_cost("1.04, 1.10,1.15")
    assert [cost.at(depth) for depth in range(4)] == [1, 1.04, 1.10, 1.15]
    assert cost.max_depth == 3


def test_points_are_joined_by_straight_lines() -> None:
    cost = parse_verify_cost("7:1.90,3:1.30")
    assert [cost.at(depth) for depth in (0, 1, 3, 5, 7)] == pytest.approx([1, 1.1, 1.3, 1.6, 1.9])


def test_nothing_is_claimed_beyond_the_last_measurement() -> None:
    with pytest.raises(InvalidOption, match="measured up to depth 7, not 8"):
        MeasuredVerifyCost(((7, 1.9),)).at(8)


@pytest.mark.parametrize(
    "spec",
    ["", "fast", "1.0,,1.2", "3:", ":1.2", "1.5:2", "-1:1.2", "3:1.2,1.4", "nan", "inf", "-0.1"],
)
def test_an_unreadable_spec_is_one_sentence(spec: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        parse_verify_cost(spec)
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "points",
    [(), ((3, 1.1), (3, 1.2)), ((0, 1.1), (2, 1.2)), ((2, 0.0),), ((2, math.nan),), ((-1, 1.0),)],
)
def test_impossible_measurements_are_refused(points: tuple[tuple[int, float], ...]) -> None:
    with pytest.raises(InvalidOption):
        MeasuredVerifyCost(points)
