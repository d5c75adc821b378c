"""Draws follow their law: by quantile exactly, by Gumbel noise in closed form."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from forerun.sampling import Noise, draw, draw_siblings, gumbel_argmax, gumbel_top
from forerun.sampling.noise import gumbel_from_words
from tests.enumeration import LazyUniform, law_of

weights = hnp.arrays(
    np.float64, st.integers(1, 6), elements=st.sampled_from([0.0, 1e-12, 0.1, 1.0, 3.0])
).filter(lambda row: row.sum() > 0)


@given(weights)
def test_draw_has_its_law(row: npt.NDArray[np.float64]) -> None:
    probs = row / row.sum()
    law = law_of(lambda world: draw(probs, LazyUniform(world)))  # type: ignore[arg-type]
    for token, prob in enumerate(probs):
        assert law.get(token, 0.0) == pytest.approx(prob, abs=1e-12)


@pytest.mark.parametrize("u", [0.0, np.nextafter(1.0, 0.0)])
def test_draw_at_the_ends_never_returns_an_impossible_token(u: float) -> None:
    probs = np.array([0.0, 0.1, 0.2, 0.7, 0.0])
    assert probs[draw(probs, u)] > 0


@given(weights, st.integers(1, 4))
def test_siblings_without_replacement_are_distinct_with_conditional_q(
    row: npt.NDArray[np.float64], k: int
) -> None:
    probs = row / row.sum()
    uniforms = np.linspace(0.05, 0.95, k)
    drawn = draw_siblings(probs, uniforms, replace=False)
    assert len(drawn) == min(k, np.count_nonzero(probs))
    taken: list[int] = []
    for token, q in drawn:
        rest = np.where(np.isin(np.arange(len(probs)), taken), 0.0, probs)
        assert q == pytest.approx(rest / rest.sum(), abs=1e-12)
        assert q[token] > 0
        taken.append(token)


def test_gumbel_max_has_the_softmax_law_in_closed_form() -> None:
    """P(x wins) = E[∏ F(l_x + g − l_y)] with F the Gumbel distribution function: integrate over
    the shipped noise of x on a fine grid of words, and compare with softmax."""
    logits = np.array([0.3, -1.0, 2.0, 0.0])
    probs = np.exp(logits) / np.exp(logits).sum()
    step = 2**13
    noise = gumbel_from_words(
        np.arange(step // 2, 2**32, step, dtype=np.uint64), np.zeros(2**32 // step, np.uint64)
    )
    for x, prob in enumerate(probs):
        gaps = (logits[x] + noise)[:, None] - np.delete(logits, x)
        wins = np.exp(-np.exp(-gaps)).prod(axis=1)
        assert wins.mean() == pytest.approx(prob, abs=1e-5)


class ArrayNoise:
    def __init__(self, values: npt.NDArray[np.float64]) -> None:
        self.values = values

    def gumbel(self, position: int, tokens: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        return np.asarray(self.values[position, tokens])


def test_gumbel_argmax_adds_and_breaks_ties_to_the_lowest_id() -> None:
    noise = ArrayNoise(np.array([[0.0, 1.0, 0.0, 5.0]]))
    assert gumbel_argmax(np.array([1.0, 0.0, 1.0, -np.inf]), noise, 0) == 0
    assert gumbel_top(np.array([1.0, 0.0, 1.0]), noise, 0, 9, np.arange(3)) == [0, 1, 2]
    assert gumbel_top(np.array([1.0, 1.0]), noise, 0, 9, np.array([0, 2])) == [0, 2]


def test_one_candidate_needs_no_noise() -> None:
    logits = np.full(5, -np.inf)
    logits[3] = 0.0
    assert gumbel_argmax(logits, ArrayNoise(np.empty((0, 0))), 7) == 3


def test_top_1_of_k_is_the_argmax() -> None:
    logits = np.random.default_rng(0).normal(size=50)
    for position in range(20):
        top = gumbel_top(logits, Noise(1), position, 5, np.arange(50))
        assert top[0] == gumbel_argmax(logits, Noise(1), position)
        assert len(set(top)) == 5
