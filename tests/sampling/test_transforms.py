"""The served distribution: against its definition, at its edges, and on bad input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.errors import InvalidDistribution, InvalidOption
from forerun.sampling import (
    Context,
    checked_argmax,
    log_probs,
    ranked_logits,
    served_logits,
    served_probs,
)
from forerun.sampling.softmax import weight_sum
from forerun.types import SamplingParams, StructuredOutputsParams
from tests.plain_pipeline import plain_probs

V = 7
FITTING: dict[str, Any] = {"structured_outputs": StructuredOutputsParams(regex="any")}
EOS = (6,)


@st.composite
def options(draw: st.DrawFn) -> dict[str, Any]:
    maybe: dict[str, st.SearchStrategy[Any]] = {
        "temperature": st.sampled_from([0.0, 0.01, 0.7, 1.0, 3.0]),
        "top_k": st.integers(0, V + 2),
        "top_p": st.sampled_from([0.05, 0.3, 0.55, 0.9, 1.0]),
        "min_p": st.sampled_from([0.0, 0.03, 0.21, 1.0]),
        "repetition_penalty": st.sampled_from([0.8, 1.0, 1.3]),
        "presence_penalty": st.sampled_from([-0.5, 0.0, 0.7]),
        "frequency_penalty": st.sampled_from([-0.3, 0.0, 0.4]),
        "logit_bias": st.dictionaries(st.integers(0, V - 1), st.sampled_from([-100.0, 0.3, 4.0])),
        "allowed_token_ids": st.none() | st.sets(st.integers(0, V - 2), min_size=1).map(tuple),
        "min_tokens": st.integers(0, 4),
    }
    chosen = draw(st.sets(st.sampled_from(sorted(maybe))))
    return {name: draw(maybe[name]) for name in sorted(chosen)}


tokens = st.lists(st.integers(0, V - 1), max_size=5)
# Steps of 1/4 make ties common; no cumulative sum of these lands on a top_p above by accident.
rows = st.lists(st.integers(-12, 12).map(lambda x: x / 4), min_size=V, max_size=V)


@given(options(), rows, tokens, tokens)
def test_agrees_with_the_definition(
    chosen: dict[str, Any], row: list[float], prompt: list[int], output: list[int]
) -> None:
    params = SamplingParams(max_tokens=99, **chosen)
    got = served_probs(np.array(row, np.float32), params, Context(prompt, output), EOS)
    assert got == pytest.approx(plain_probs(row, params, prompt, output, EOS), abs=1e-12)


@given(options(), rows, tokens, tokens)
def test_the_best_ranked_is_what_temperature_0_serves(
    chosen: dict[str, Any], row: list[float], prompt: list[int], output: list[int]
) -> None:
    params = SamplingParams(**chosen | {"max_tokens": 99, "temperature": 0})
    logits, context = np.array(row, np.float32), Context(prompt, output)
    ranked = ranked_logits(logits, params, context, EOS)
    probs = served_probs(logits, params, context, EOS)
    assert checked_argmax(ranked) == np.argmax(probs)


def test_logits_that_nothing_changes_are_not_copied() -> None:
    row = np.array([1.0, 1e-30, 1.0], np.float32)
    assert ranked_logits(row, SamplingParams(temperature=0), Context()) is row
    held = SamplingParams(temperature=0, min_tokens=2)
    assert ranked_logits(row, held, Context(), (0,)) is not row
    assert ranked_logits(row, held, Context((), (1, 1)), (0,)) is row


def served(row: list[float], **chosen: Any) -> list[float]:
    return list(served_probs(np.array(row), SamplingParams(**chosen), Context()))


def test_ties_go_to_the_lowest_id() -> None:
    assert served([1, 2, 2, 2], temperature=0) == [0, 1, 0, 0]
    assert served([1, 2, 2, 2], top_k=2) == [0, 0.5, 0.5, 0]
    assert served([0, 0, 0, 0], top_p=0.5) == [0.5, 0.5, 0, 0]
    assert served([0, 0, 0, 0], top_p=0.5001) == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0])
    assert served([0, 0, 0, 0], top_k=3, top_p=0.5) == [0.5, 0.5, 0, 0]


@pytest.mark.parametrize("scale", [0.01, 3.0])
def test_top_p_of_a_large_vocabulary(scale: float) -> None:
    """Shortcuts for many tokens change nothing, whether few or nearly all of them are kept."""
    row = np.round(np.random.default_rng(0).normal(size=2000) * scale, 3)
    params = SamplingParams(top_p=0.7)
    got = served_probs(row, params, Context())
    assert got == pytest.approx(plain_probs(row.tolist(), params, [], []), abs=1e-12)


def test_min_p_is_relative_to_the_best_and_inclusive() -> None:
    row = np.log([0.5, 0.25, 0.2, 0.05]).tolist()
    assert served(row, min_p=0.4) == pytest.approx(np.array([0.5, 0.25, 0.2, 0]) / 0.95)
    assert served(row, min_p=1.0) == [1, 0, 0, 0]


def test_tiny_temperature_is_argmax_not_overflow() -> None:
    assert served([1.0, 2.0, 1.5], temperature=1e-300) == [0, 1, 0]


@pytest.mark.parametrize("option", [{}, {"top_p": 0.9}, {"min_p": 0.1}, {"top_k": 2}])
def test_the_smallest_temperatures_warn_nobody(option: dict[str, Any]) -> None:
    params, row = SamplingParams(temperature=1e-310, **option), np.array([3.0, 1.0, -1e30])
    with np.errstate(all="raise"):
        served = served_logits(row, params, Context((), ()))
        assert weight_sum(row, 3.0, 1e-310)[0] == pytest.approx(1)
    assert served.tolist() == [0.0, -np.inf, -np.inf]


def test_huge_temperature_is_uniform() -> None:
    assert served([1.0, 2.0, -50.0], temperature=1e9) == pytest.approx([1 / 3] * 3, abs=1e-6)


def test_served_logits_are_normalised_to_a_largest_of_zero() -> None:
    logits = served_logits(np.array([5.0, 7.0]), SamplingParams(temperature=2.0), Context())
    assert logits.tolist() == [-1.0, 0.0]


def test_input_is_not_changed() -> None:
    row = np.array([1.0, 2.0, 3.0])
    params = SamplingParams(repetition_penalty=2.0, logit_bias={0: 3.0}, presence_penalty=1.0)
    served_logits(row, params, Context((1,), (2,)))
    assert row.tolist() == [1.0, 2.0, 3.0]


def test_a_model_may_mask_tokens_itself() -> None:
    assert served([-np.inf, 0.0, 0.0], repetition_penalty=1.5) == [0, 0.5, 0.5]


def test_eos_waits_for_min_tokens_unless_ignored() -> None:
    row = np.zeros(3)
    params = SamplingParams(min_tokens=2, stop_token_ids=(1,))
    assert served_probs(row, params, Context((), (0,)), (2,)).tolist() == [1, 0, 0]
    assert served_probs(row, params, Context((), (0, 0)), (2,)).tolist() == [1 / 3] * 3
    ignoring = SamplingParams(min_tokens=2, ignore_eos=True)
    assert served_probs(row, ignoring, Context(), (2,)).tolist() == [1 / 3] * 3


@pytest.mark.parametrize("end", [3, 4, 99])
def test_an_end_outside_the_vocabulary_needs_no_mask(end: int) -> None:
    params = SamplingParams(min_tokens=2, stop_token_ids=(end,))
    assert served_probs(np.zeros(3), params, Context(), (end, 1)).tolist() == [0.5, 0, 0.5]


def test_penalties_see_a_nodes_own_ancestors() -> None:
    params = SamplingParams(temperature=0, frequency_penalty=0.6)
    row = np.array([1.0, 0.5])
    context = Context((), (0,))
    assert served_probs(row, params, Context()).tolist() == [1, 0]
    assert served_probs(row, params, context).tolist() == [0, 1]
    assert served_probs(row, params, context.extended((1, 1))).tolist() == [1, 0]


def test_temperature_0_serves_one_token_at_0() -> None:
    served = served_logits(np.array([1.0, 3.0, 2.0]), SamplingParams(temperature=0), Context())
    assert served.tolist() == [-np.inf, 0.0, -np.inf]


@pytest.mark.parametrize("offset", [-2000.0, 0.0, 2000.0])
def test_log_probabilities_do_not_overflow(offset: float) -> None:
    found = np.exp(log_probs(np.log([0.25, 0.75]) + offset))
    np.testing.assert_allclose(found, [0.25, 0.75], rtol=1e-9)


def test_shown_log_probabilities_are_the_raw_ones() -> None:
    row = np.array([1.0, 2.0, 3.0])
    assert np.exp(log_probs(row)).sum() == pytest.approx(1)
    assert log_probs(row)[2] - log_probs(row)[0] == pytest.approx(2)


@pytest.mark.parametrize(
    "row", [[np.nan, 1.0], [1.0, np.nan], [np.inf, 1.0], [-np.inf, -np.inf], [], [[1.0, 2.0]]]
)
def test_broken_logits_are_refused(row: list[Any]) -> None:
    with pytest.raises(InvalidDistribution):
        served_logits(np.array(row), SamplingParams(), Context())
    with pytest.raises(InvalidDistribution):
        checked_argmax(ranked_logits(np.array(row), SamplingParams(), Context()))


class OddThenOver:
    """A grammar of exactly two odd tokens."""

    def binds(self, output: Sequence[int], more: Sequence[int] = ()) -> bool:  # noqa: ARG002
        return True

    def may_loosen(self, output: Sequence[int]) -> bool:  # noqa: ARG002
        return False

    def allowed_bits(self, output: Sequence[int], more: Sequence[int] = ()) -> bytes:
        return bytes([0b0010_1010 if len(output) + len(more) < 2 else 0])

    def is_over(self, output: Sequence[int], more: Sequence[int] = ()) -> bool:
        return len(output) + len(more) == 2

    def num_fitting(self, output: Sequence[int], tokens: Sequence[int]) -> int:
        raise NotImplementedError


@pytest.mark.parametrize("num", [8, 10, 17])  # tokens past the bits are left out
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_grammar_leaves_tokens_out(dtype: Any, num: int) -> None:
    row, start = np.arange(num, dtype=dtype), Context((1,), (), OddThenOver())
    for context in (start, start.extended((3,))):  # a guess's own, too
        probs = served_probs(row, SamplingParams(**FITTING), context)
        assert np.flatnonzero(probs).tolist() == [1, 3, 5]
        assert checked_argmax(ranked_logits(row, SamplingParams(**FITTING), context)) == 5
    assert row.tolist() == list(range(num))


def test_behind_the_end_of_a_grammar_whatever_comes_will_do() -> None:
    """The token is cut off; but there must be one, whatever the other options leave out."""
    params = SamplingParams(allowed_token_ids=(1,), min_tokens=9, max_tokens=9, **FITTING)
    over = Context((), (1, 3), OddThenOver())
    assert served_probs(np.zeros(10), params, over).sum() == pytest.approx(1)


@pytest.mark.parametrize("transform", [served_logits, ranked_logits])
def test_masking_everything_is_refused(transform: Any) -> None:
    params = SamplingParams(allowed_token_ids=(1,), min_tokens=1)
    with pytest.raises(InvalidOption, match="every token is masked"):
        transform(np.zeros(3), params, Context(), (1,))


@pytest.mark.parametrize("transform", [served_logits, ranked_logits])
def test_broken_logits_are_refused_where_they_are_masked(transform: Any) -> None:
    params = SamplingParams(allowed_token_ids=(1,))
    with pytest.raises(InvalidDistribution, match="the model's output is broken"):
        transform(np.array([np.nan, 1.0]), params, Context())


@pytest.mark.parametrize("token", [3, 9])
@pytest.mark.parametrize("option", ["logit_bias", "allowed_token_ids"])
def test_a_token_outside_the_vocabulary_is_refused(option: str, token: int) -> None:
    given = {"logit_bias": {token: 1.0}, "allowed_token_ids": (token,)}[option]
    with pytest.raises(InvalidOption, match=f"names token {token}; the vocabulary ends at 2"):
        served_logits(np.zeros(3), SamplingParams.from_dict({option: given}), Context())


@pytest.mark.parametrize(
    "option",
    [
        {"repetition_penalty": 1e-300},
        {"presence_penalty": -1e308, "frequency_penalty": -1e308},
        {"frequency_penalty": -1.7e308, "allowed_token_ids": (0, 2)},
    ],
)
def test_penalties_that_overflow_are_refused(option: dict[str, Any]) -> None:
    context = Context((), (0, 0, 1, 1, 2))
    with pytest.raises(InvalidOption, match="overflow"):
        served_logits(np.array([5e20, 2.0, 1.0]), SamplingParams(**option), context)
