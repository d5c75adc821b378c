"""How often guesses are accepted: closed forms against brute force, simulation and each other."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.errors import InvalidDistribution, InvalidOption
from forerun.theory.acceptance import (
    Float64Array,
    beta_coupled,
    beta_lenient,
    beta_plain_rejection,
    beta_rejection,
)

Pair = tuple[Float64Array, Float64Array]


@st.composite
def pairs(draw: st.DrawFn) -> Pair:
    """Two distributions over one small vocabulary; zeros and equal entries are common."""
    size = draw(st.integers(1, 7))
    entry = st.integers(0, 6) | st.floats(1e-6, 6)
    weights = st.lists(entry, min_size=size, max_size=size).filter(any)
    p, q = np.array(draw(weights), float), np.array(draw(weights), float)
    return p / p.sum(), q / q.sum()


def random_pair(rng: np.random.Generator, size: int) -> Pair:
    return rng.dirichlet(np.full(size, 0.7)), rng.dirichlet(np.full(size, 0.7))


def coupled_by_definition(p: Float64Array, q: Float64Array) -> float:
    """Σ_x 1 / Σ_y max(p_y/p_x, q_y/q_x) over the common support, term by term."""
    return math.fsum(
        1 / math.fsum(max(p[y] / p[x], q[y] / q[x]) for y in range(len(p)))
        for x in range(len(p))
        if p[x] > 0 and q[x] > 0
    )


@given(pairs())
def test_beta_under_rejection_by_brute_force(pair: Pair) -> None:
    p, q = pair
    drawn_and_kept = sum(q[x] * min(1.0, p[x] / q[x]) for x in range(len(p)) if q[x] > 0)
    assert beta_rejection(p, q) == pytest.approx(drawn_and_kept, abs=1e-12)


@given(pairs())
def test_beta_under_rejection_is_one_less_the_total_variation(pair: Pair) -> None:
    p, q = pair
    variation = float(np.abs(p - q).sum()) / 2
    assert beta_rejection(p, q) == pytest.approx(1 - variation, abs=1e-12)
    assert beta_rejection(p, q) == beta_rejection(q, p)


@given(pairs())
def test_coupled_by_brute_force(pair: Pair) -> None:
    p, q = pair
    assert beta_coupled(p, q) == pytest.approx(coupled_by_definition(p, q), abs=1e-12)


@given(pairs())
def test_coupled_lies_between_its_bounds(pair: Pair) -> None:
    p, q = pair
    beta = beta_rejection(p, q)
    assert beta / (2 - beta) - 1e-12 <= beta_coupled(p, q) <= beta + 1e-12
    assert beta_coupled(p, q) == pytest.approx(beta_coupled(q, p), abs=1e-12)


@pytest.mark.parametrize("size", [4, 8, 40])
def test_coupled_against_simulation(size: int) -> None:
    """Shared Gumbel noise, fixed seed; each case fails by chance once in 1.7 million (5 σ)."""
    rng = np.random.default_rng(20230514 + size)
    p, q = random_pair(rng, size)
    num_draws = 100_000
    noise = rng.gumbel(size=(num_draws, size))
    held = float(np.mean((np.log(p) + noise).argmax(1) == (np.log(q) + noise).argmax(1)))
    beta = beta_coupled(p, q)
    sigma = math.sqrt(beta * (1 - beta) / num_draws)
    assert abs(held - beta) < 5 * sigma
    assert beta_rejection(p, q) - beta > 10 * sigma  # the test tells the two forms apart


def test_coupled_over_a_whole_vocabulary_is_quick_and_right() -> None:
    rng = np.random.default_rng(7)
    p, q = random_pair(rng, 1500)
    ratios = np.maximum(p[None, :] / p[:, None], q[None, :] / q[:, None])  # [V, V]
    assert beta_coupled(p, q) == pytest.approx(float((1 / ratios.sum(1)).sum()), rel=1e-11)
    p, q = random_pair(rng, 128_256)
    assert 0 < beta_coupled(p, q) < beta_rejection(p, q)


@given(pairs(), st.floats(1e-3, 1))
def test_lenient_by_brute_force(pair: Pair, lenience: float) -> None:
    p, q = pair
    kept = sum(q[x] * min(1.0, p[x] / (lenience * q[x])) for x in range(len(p)) if q[x] > 0)
    assert beta_lenient(p, q, lenience) == pytest.approx(kept, abs=1e-12)
    assert beta_lenient(p, q, 1.0) == pytest.approx(beta_rejection(p, q), abs=1e-12)
    assert beta_lenient(p, q, lenience) >= beta_rejection(p, q) - 1e-12


@given(pairs())
def test_plain_rejection_sampling_never_accepts_more(pair: Pair) -> None:
    """A.2: E_q[p/(Mq)] with M = max p/q, which is 1/M."""
    p, q = pair
    found = beta_plain_rejection(p, q)
    if np.any((p > 0) & (q == 0)):
        assert found == 0
    else:
        bound = max(p[x] / q[x] for x in range(len(p)) if q[x] > 0)
        assert found == pytest.approx(1 / bound, abs=1e-12)
    assert found <= beta_rejection(p, q) + 1e-12


def test_worked_example_of_plain_rejection() -> None:
    p, q = np.array([0.5, 0.5, 0.0]), np.array([0.8, 0.1, 0.1])
    assert beta_plain_rejection(p, q) == pytest.approx(0.2)
    assert beta_rejection(p, q) == pytest.approx(0.6)


@pytest.mark.parametrize("beta", [beta_rejection, beta_coupled, beta_plain_rejection])
def test_equal_and_disjoint_distributions(beta: Callable[..., float]) -> None:
    same = np.array([0.1, 0.2, 0.7])
    assert beta(same, same) == pytest.approx(1)
    assert beta(np.array([1.0, 0.0]), np.array([0.0, 1.0])) == 0


def test_extreme_ratios_stay_finite() -> None:
    p, q = np.array([1.0, 5e-324]), np.array([5e-324, 1.0])
    for value in (beta_coupled(p, q), beta_plain_rejection(p, q), beta_lenient(p, q, 5e-324)):
        assert 0 <= value <= 1


def test_float32_rows_never_give_more_than_one() -> None:
    logits = np.random.default_rng(3).normal(size=50_000).astype(np.float32)
    p = np.exp(logits) / np.exp(logits).sum(dtype=np.float32)
    for value in (beta_rejection(p, p), beta_coupled(p, p), beta_plain_rejection(p, p)):
        assert value <= 1
        assert value == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize(
    "bad",
    [[0.5, 0.6], [-0.1, 1.1], [math.nan, 1.0], [math.inf, 0.0], [], [[0.5, 0.5]]],
)
def test_what_is_no_distribution_is_refused(bad: list[float]) -> None:
    row, good = np.array(bad), np.array([0.5, 0.5])
    for beta in (beta_rejection, beta_coupled, beta_plain_rejection):
        with pytest.raises(InvalidDistribution, match=r"^p "):
            beta(row, good)
        with pytest.raises(InvalidDistribution, match=r"^q "):
            beta(good, row)


def test_different_vocabularies_are_refused() -> None:
    with pytest.raises(InvalidDistribution, match="one vocabulary"):
        beta_rejection(np.array([1.0]), np.array([0.5, 0.5]))


@pytest.mark.parametrize("lenience", [0, -1, 1.5, math.nan])
def test_lenience_outside_its_range_is_refused(lenience: float) -> None:
    with pytest.raises(InvalidOption, match="lenience is"):
        beta_lenient(np.array([1.0]), np.array([1.0]), lenience)
