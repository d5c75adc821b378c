"""Guesses from a law: in the way the request judges them, each with the q it was drawn from."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from forerun.drafters.law import DraftLaw
from forerun.sampling import Noise, Stream, gumbel_argmax, softmax
from forerun.types import Acceptance, SamplingParams
from tests.contracts.test_drafters import View

LOGITS = np.array([0.5, -np.inf, 2.0, 2.0, -1.0, -np.inf])
LAW = DraftLaw.dense(LOGITS)
REJECTION = SamplingParams(acceptance=Acceptance.REJECTION)


class HeardNoise(Noise):
    """The shipped noise, and for what it was asked."""

    def __init__(self) -> None:
        super().__init__(4)
        self.uniforms: list[tuple[Stream, int, int]] = []
        self.positions: list[int] = []

    def uniform(self, stream: Stream, round_idx: int, draw_idx: int) -> float:
        self.uniforms.append((stream, round_idx, draw_idx))
        return super().uniform(stream, round_idx, draw_idx)

    def gumbel(self, position: int, tokens: Any) -> Any:
        self.positions.append(position)
        return super().gumbel(position, tokens)


def view(params: SamplingParams, round_idx: int = 0) -> View:
    return View((1, 2, 3), output=(4,), params=params, noise=HeardNoise(), round_idx=round_idx)


def test_what_is_excluded_is_no_candidate() -> None:
    assert LAW.tokens.tolist() == [0, 2, 3, 4]
    assert LAW.logits.tolist() == [0.5, 2.0, 2.0, -1.0]
    assert LAW.vocab_size == 6


@pytest.mark.parametrize(
    ("num", "best"), [(1, [2]), (2, [2, 3]), (3, [2, 3, 0]), (9, [2, 3, 0, 4])]
)
def test_temperature_0_takes_the_best_ties_by_id(num: int, best: list[int]) -> None:
    params = SamplingParams(temperature=0)
    assert LAW.guesses(view(params), 0, num, itertools.count()) == [(t, None) for t in best]


@pytest.mark.parametrize("depth", [0, 1, 5])
def test_coupled_guesses_by_the_targets_noise_at_that_place(depth: int) -> None:
    request = view(SamplingParams())
    found = LAW.guesses(request, depth, 1, itertools.count())
    assert request.noise.positions == [4 + depth]  # type: ignore[attr-defined]
    assert found == [(gumbel_argmax(LOGITS, Noise(4), 4 + depth), None)]


def test_drawn_guesses_ask_for_their_own_uniforms() -> None:
    request, draw_idx = view(REJECTION, round_idx=6), itertools.count(10)
    LAW.guesses(request, 0, 2, draw_idx)
    LAW.guesses(request, 1, 1, draw_idx)
    assert request.noise.uniforms == [(Stream.DRAFT, 6, idx) for idx in (10, 11, 12)]  # type: ignore[attr-defined]


@pytest.mark.parametrize("num", [1, 2, 4, 7])
def test_drawn_guesses_carry_the_law_of_what_was_left(num: int) -> None:
    rest = softmax(LOGITS)
    found = LAW.guesses(view(REJECTION), 0, num, itertools.count())
    assert len(found) == min(num, 4)
    for token, probs_q in found:
        assert probs_q is not None
        np.testing.assert_allclose(probs_q, rest, rtol=1e-12)
        assert probs_q.dtype == np.float64
        rest[token] = 0.0
        rest /= rest.sum() or 1.0


def test_at_temperature_0_nothing_is_drawn_in_any_mode() -> None:
    request = view(REJECTION.with_(temperature=0))
    assert LAW.guesses(request, 0, 1, itertools.count()) == [(2, None)]
