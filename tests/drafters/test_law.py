"""Guesses from a draft law: made as the request's acceptance asks, each with its q."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from forerun.drafters.law import DraftLaw
from forerun.sampling import Context, Noise, Stream, gumbel_argmax, served_logits, softmax
from forerun.types import Acceptance, SamplingParams
from tests.contracts.test_drafters import View

LOGITS = np.array([0.5, -np.inf, 2.0, 2.0, -1.0, -np.inf])
LAW = DraftLaw.dense(LOGITS)
REJECTION = SamplingParams(acceptance=Acceptance.REJECTION)


class HeardNoise(Noise):
    """The shipped noise, which notes what it was asked for."""

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


# --------------------------------------------------------------------- from a model's own logits

ROW = np.array([0.3, 1.5, -2.0, 1.5, 0.9], np.float32)
OPTIONS: dict[str, dict[str, Any]] = {
    "as they are": {},
    "temperature": {"temperature": 0.5},
    "temperature 0": {"temperature": 0, "top_k": 1},
    "top-k": {"top_k": 2},
    "repetition": {"repetition_penalty": 2.0},
    "frequency": {"frequency_penalty": 0.4, "temperature": 0},
    "bias": {"logit_bias": {1: 5.0, 2: -1.0}},
    "allowed": {"allowed_token_ids": (0, 2, 3)},
    "too short to end": {"min_tokens": 4, "stop_token_ids": (3,)},
    "long enough to end": {"min_tokens": 3, "stop_token_ids": (3,)},
}


# A row's token ids, the size of the vocabulary, and how many logits of padding follow the last id.
ROWS: dict[str, tuple[tuple[int, ...], int, int]] = {
    "all": ((0, 1, 2, 3, 4), 5, 0),
    "filled up": ((0, 1, 2, 3, 4), 5, 2),
    "the first": ((0, 1, 2, 3, 4), 8, 0),
    "some": ((0, 2, 3, 5, 6), 8, 0),
    "some, filled up": ((0, 2, 3, 5, 6), 8, 2),
}


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("rows", ROWS)
def test_a_row_of_some_ids_is_served_as_a_whole_one_without_the_others(
    options: str, rows: str
) -> None:
    request, path = view(SamplingParams(**OPTIONS[options])), (1, 3)
    ids, vocab_size, num_behind = ROWS[rows]
    row = np.append(ROW, np.full(num_behind, 9, np.float32))
    tokens = np.array(ids) if "some" in rows else None
    found = DraftLaw.served(row, request, path, vocab_size, tokens)
    assert found is not None
    whole = np.full(vocab_size, -np.inf)
    whole[list(ids)] = ROW
    params = request.params if request.params.temperature else request.params.before_argmax
    context = Context(request.prompt, (*request.output, *path))
    expected = DraftLaw.dense(served_logits(whole, params, context))
    assert found.tokens.tolist() == expected.tokens.tolist()
    assert found.logits.tolist() == expected.logits.tolist()
    assert found.vocab_size == vocab_size


def test_no_law_where_the_options_allow_none_of_its_ids() -> None:
    request = view(SamplingParams(allowed_token_ids=(0, 2)))
    assert DraftLaw.served(ROW[:3], request, (), 20, np.array([5, 6, 9])) is None
    found = DraftLaw.served(ROW[:3], request, (), 20, np.array([2, 6, 9]))
    assert found is not None
    assert found.tokens.tolist() == [2]
