"""The closed forms against the paper's tables, the seeds' worked numbers and direct summation."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.errors import InvalidOption
from forerun.theory.closed_forms import (
    assured_speedup,
    can_help,
    expected_accepted,
    expected_tokens,
    memory_access_factor,
    operations_factor,
    optimal_depth,
    oracle_speedup,
    speedup,
)
from forerun.theory.ranges import DEPTH_LIMIT
from forerun.theory.verify_cost import LinearVerifyCost, MeasuredVerifyCost

alphas = st.floats(0, 1)
costs = st.floats(0, 4)
depths = st.integers(0, 40)

# α, γ, operations, speed
TABLE_1 = [
    (0.6, 2, 1.53, 1.96),
    (0.7, 3, 1.58, 2.53),
    (0.8, 2, 1.23, 2.44),
    (0.8, 5, 1.63, 3.69),
    (0.9, 2, 1.11, 2.71),
    (0.9, 10, 1.60, 6.86),
]

# γ, α, c, and EXP as it follows from them; the paper prints 2.4, 2.0 and 1.6 in the last three.
TABLE_4 = [
    (7, 0.75, 0.02, "3.2"),
    (7, 0.80, 0.04, "3.3"),
    (7, 0.82, 0.11, "2.5"),
    (7, 0.62, 0.02, "2.3"),
    (5, 0.65, 0.02, "2.4"),
    (5, 0.73, 0.04, "2.6"),
    (3, 0.74, 0.11, "2.0"),
    (5, 0.53, 0.02, "1.9"),
    (3, 0.55, 0.04, "1.8"),
    (5, 0.68, 0.04, "2.35"),
    (3, 0.71, 0.11, "1.93"),
    (3, 0.56, 0.11, "1.54"),
]


def to_digits(value: float, like: str) -> str:
    return f"{value:.{len(like.partition('.')[2])}f}"


@pytest.mark.parametrize(("alpha", "depth", "operations", "speed"), TABLE_1)
def test_table_1(alpha: float, depth: int, operations: float, speed: float) -> None:
    assert round(operations_factor(alpha, depth, 0), 2) == operations
    assert round(speedup(alpha, depth, 0), 2) == speed


@pytest.mark.parametrize(("depth", "alpha", "cost", "expected"), TABLE_4)
def test_table_4_expected_improvement(depth: int, alpha: float, cost: float, expected: str) -> None:
    assert to_digits(speedup(alpha, depth, cost), expected) == expected


def test_lenience_at_temperature_0_follows_from_its_alphas() -> None:
    """A.5, second part: c = 0.015 and γ = 8."""
    found = [round(speedup(alpha, 8, 0.015), 1) for alpha in (0.75, 0.75, 0.8, 0.87)]
    assert found == [3.3, 3.3, 3.9, 4.9]


def test_lenience_at_temperature_1_falls_short_of_the_printed_factors() -> None:
    """A.5 prints 2.5, 3.1, 3.6 and 5; with c = 0.015 and Table 5's α no depth reaches them."""
    alphas = (0.62, 0.71, 0.76, 0.84)
    best = [speedup(alpha, optimal_depth(alpha, 0.015, 64), 0.015) for alpha in alphas]
    assert [round(value, 2) for value in best] == [2.33, 2.94, 3.45, 4.79]


def test_bigram_drafter_of_section_3_6() -> None:
    assert round(speedup(0.2, 3, 0), 2) == 1.25


@pytest.mark.parametrize(
    ("alpha", "depth", "tokens", "speed"),
    [
        (0.6, 5, 2.4, 1.6),
        (0.7, 5, 2.9, 2.0),
        (0.8, 5, 3.7, 2.5),
        (0.9, 5, 4.7, 3.1),
        (0.85, 8, 5.1, 2.8),
        (0.90, 10, 6.9, 3.4),
    ],
)
def test_a_table_of_depths(alpha: float, depth: int, tokens: float, speed: float) -> None:
    assert round(expected_tokens(alpha, depth), 1) == tokens
    assert round(speedup(alpha, depth, 0.1), 1) == speed


def test_worked_numbers() -> None:
    assert [round(speedup(alpha, 5, 0.1), 2) for alpha in (0.6, 0.8, 0.9)] == [1.59, 2.46, 3.12]
    by_depth = {depth: speedup(0.72, depth, 0.12) for depth in (1, 3, 5, 8)}
    rounded = {depth: round(value, 3) for depth, value in by_depth.items()}
    assert rounded == {1: 1.536, 3: 1.92, 5: 1.921, 8: 1.727}
    assert max(by_depth, key=by_depth.__getitem__) == 5


def test_the_best_of_all_depths_may_lie_between_those_of_a_table() -> None:
    assert optimal_depth(0.72, 0.12, 16) == 4
    assert round(speedup(0.72, 4, 0.12), 3) == 1.946


def test_accepted_guesses() -> None:
    found = [round(expected_accepted(alpha, 4), 2) for alpha in (0.5, 0.7, 0.9)]
    assert found == [0.94, 1.77, 3.10]


def test_speedup_with_a_longer_pass() -> None:
    """A 5-token pass at 1.3 plain passes: 1.5, 2.1 and 3.2 rather than 1.5, 2.3 and 3.3."""
    pass_cost = MeasuredVerifyCost(((4, 1.3),))
    found = [round(speedup(alpha, 4, 0, pass_cost), 2) for alpha in (0.5, 0.7, 0.9)]
    assert found == [1.49, 2.13, 3.15]


def test_ten_guesses_bring_more_than_four_tokens() -> None:
    assert round(expected_tokens(0.8, 10), 2) == 4.57


@pytest.mark.parametrize("beta", [0.0, 0.3, 0.8, 1.0])
@pytest.mark.parametrize("cap", [0, 1, 4, 10])
def test_expected_length_sums_to_eq_1_only_with_the_mass_at_the_cap(beta: float, cap: int) -> None:
    """L = T + 1 has probability β^T, with no factor 1 - β."""
    misses = sum((1 - beta) * beta ** (t - 1) * t for t in range(1, cap + 1))
    full = beta**cap * (cap + 1)
    assert expected_tokens(beta, cap) == pytest.approx(misses + full, abs=1e-12)
    if beta in (0.3, 0.8):
        assert misses + (1 - beta) * full < expected_tokens(beta, cap) - 1e-7


@given(alphas, depths)
def test_expected_tokens_is_the_exact_sum(alpha: float, depth: int) -> None:
    exact = sum(Fraction(alpha) ** i for i in range(depth + 1))
    assert math.isclose(expected_tokens(alpha, depth), exact, rel_tol=1e-13)
    assert math.isclose(expected_accepted(alpha, depth), exact - 1, rel_tol=1e-12, abs_tol=1e-300)


def test_expected_tokens_is_exact_at_and_near_certainty() -> None:
    assert expected_tokens(1.0, 7) == 8.0
    assert expected_tokens(1 - 2**-53, 7) == pytest.approx(8.0, rel=1e-15)
    assert expected_tokens(0.0, 7) == 1.0


@given(alphas, depths, costs)
def test_thm_3_8_is_the_form_with_v_at_one(alpha: float, depth: int, cost: float) -> None:
    paper = expected_tokens(alpha, depth) / (depth * cost + 1)
    assert speedup(alpha, depth, cost) == pytest.approx(paper, rel=1e-14)
    flat = MeasuredVerifyCost(((40, 1.0),))
    assert speedup(alpha, depth, cost, flat) == speedup(alpha, depth, cost)


@given(alphas, st.integers(1, 40), costs, st.floats(0.01, 2))
def test_a_longer_pass_gives_less(alpha: float, depth: int, cost: float, slope: float) -> None:
    with_slope = speedup(alpha, depth, cost, LinearVerifyCost(slope))
    assert with_slope < speedup(alpha, depth, cost)
    # A pass that grows by s per guess is the same as a drafter that costs s more.
    assert with_slope == pytest.approx(speedup(alpha, depth, cost + slope), rel=1e-12)


@given(alphas, costs)
def test_corollary_3_9_both_ways(alpha: float, cost: float) -> None:
    best = optimal_depth(alpha, cost, 8)
    assert (best > 0) == can_help(alpha, cost) == (alpha > cost)
    assert speedup(alpha, best, cost) >= assured_speedup(alpha, cost) * (1 - 1e-15)


@given(alphas)
def test_equal_alpha_and_cost_gives_no_gain_though_floats_may_say_so(alpha: float) -> None:
    assert optimal_depth(alpha, alpha, 8) == 0
    assert assured_speedup(alpha, alpha) == 1.0


def test_assured_speedup_is_that_of_depth_1() -> None:
    assert assured_speedup(0.8, 0.1) == pytest.approx(1.8 / 1.1)
    assert assured_speedup(0.8, 0.1) == pytest.approx(speedup(0.8, 1, 0.1))


@given(alphas, costs, st.floats(0, 1), st.integers(1, 20))
def test_optimal_depth_is_the_exact_argmax(
    alpha: float, cost: float, slope: float, max_depth: int
) -> None:
    verify_cost = LinearVerifyCost(slope)
    best = optimal_depth(alpha, cost, max_depth, verify_cost)
    tokens, values = Fraction(0), []
    for depth in range(max_depth + 1):
        tokens += Fraction(alpha) ** depth
        values.append(tokens / (Fraction(verify_cost.at(depth)) + depth * Fraction(cost)))
    assert best == values.index(max(values))  # the first of equals: ties go to the smaller


def test_free_guesses_are_worth_any_depth() -> None:
    assert optimal_depth(0.5, 0, DEPTH_LIMIT) == DEPTH_LIMIT  # floats are flat beyond depth 53
    assert optimal_depth(0.0, 0, 16) == 0


def test_depth_can_pay_off_behind_a_step_in_the_pass_cost() -> None:
    """With a pass that doubles at once and then stays, depth 1 loses and depth 4 wins."""
    stepped = MeasuredVerifyCost(((1, 2.0), (4, 2.0)))
    assert speedup(0.9, 1, 0, stepped) < 1 < speedup(0.9, 4, 0, stepped)
    assert optimal_depth(0.9, 0, 4, stepped) == 4


@given(st.floats(0, 0.999), depths, costs)
def test_no_fixed_depth_beats_the_oracle(alpha: float, depth: int, cost: float) -> None:
    assert speedup(alpha, depth, cost) <= oracle_speedup(alpha, cost) * (1 + 1e-12)


def test_the_oracle_gains_up_to_60_percent() -> None:
    """§3.5: "up to ~60 %" over the best fixed depth, for α and c in the paper's range."""
    gains = [
        oracle_speedup(alpha, cost) / speedup(alpha, optimal_depth(alpha, cost, 128), cost)
        for alpha in (0.5, 0.7, 0.9, 0.95, 0.97)
        for cost in (0.01, 0.02, 0.05, 0.1)
    ]
    assert 1.5 < max(gains) < 1.6
    assert min(gains) > 1


def test_bounds_without_a_limit_are_infinite() -> None:
    assert oracle_speedup(1.0, 0.0) == math.inf
    assert oracle_speedup(1.0, 0.25) == 4.0
    assert oracle_speedup(0.5, 3.0) == 1.0  # it would not draft at all


@given(alphas, depths)
def test_memory_accesses_shrink_as_tokens_grow(alpha: float, depth: int) -> None:
    assert memory_access_factor(alpha, depth) * expected_tokens(alpha, depth) == pytest.approx(1)


def test_operations_count_the_drafter() -> None:
    assert operations_factor(0.8, 5, 0.1) == pytest.approx((5 * 0.1 + 6) / 3.68928)


@pytest.mark.parametrize("alpha", [math.nan, math.inf, -0.1, 1.2, True, "0.5", None])
def test_alpha_outside_its_range_is_refused(alpha: float) -> None:
    for call in (
        lambda: expected_tokens(alpha, 3),
        lambda: expected_accepted(alpha, 0),
        lambda: speedup(alpha, 3, 0.1),
        lambda: operations_factor(alpha, 3, 0.1),
        lambda: memory_access_factor(alpha, 3),
        lambda: can_help(alpha, 0.1),
        lambda: assured_speedup(alpha, 0.1),
        lambda: oracle_speedup(alpha, 0.1),
        lambda: optimal_depth(alpha, 0.1, 4),
    ):
        with pytest.raises(InvalidOption, match="alpha is"):
            call()


@pytest.mark.parametrize("cost", [math.nan, math.inf, -0.1, "1", 1e308])
def test_cost_outside_its_range_is_refused(cost: float) -> None:
    for call in (
        lambda: speedup(0.5, 3, cost),
        lambda: operations_factor(0.5, 3, cost),
        lambda: can_help(0.5, cost),
        lambda: assured_speedup(0.5, cost),
        lambda: oracle_speedup(0.5, cost),
        lambda: optimal_depth(0.5, cost, 4),
    ):
        with pytest.raises(InvalidOption, match="cost is"):
            call()


@pytest.mark.parametrize("depth", [-1, 1.5, DEPTH_LIMIT + 1, math.nan, True])
def test_depth_outside_its_range_is_refused(depth: int) -> None:
    for call in (
        lambda: expected_tokens(0.5, depth),
        lambda: expected_accepted(0.5, depth),
        lambda: speedup(0.5, depth, 0.1),
        lambda: operations_factor(0.5, depth, 0.1),
        lambda: optimal_depth(0.5, 0.1, depth),
    ):
        with pytest.raises(InvalidOption, match="depth is"):
            call()
