"""Where an answer ends, token by token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from forerun.engine import LLM
from forerun.engine.cut import Cut, cut
from forerun.types import Grammar, Origin, SamplingParams, Verdict
from tests.engine.known_answer import new_request
from tests.grammars.words import words

A, B, C, D = range(4)  # "a", "b", "c", "d"
EOS = 30


def ended(plain: LLM, tokens: tuple[int, ...], output: tuple[int, ...] = (), **options: Any) -> Cut:
    params = SamplingParams(**{"max_tokens": 50, **options})
    request = new_request(plain.tokenizer, params, output=output, end_ids=(EOS,))
    return cut(request, Verdict(tuple(range(len(tokens) - 1)), tokens, Origin.BONUS))


@pytest.mark.parametrize(
    ("min_tokens", "num"), [(0, 2), (1, 2), (2, 4), (3, 4), (4, None), (5, None)]
)
@pytest.mark.parametrize("num_before", [0, 1, 2])
def test_a_stop_string_counts_from_the_token_after_min_tokens(
    plain: LLM, min_tokens: int, num: int | None, num_before: int
) -> None:
    """The answer is abab; a `b` ends it unless it is among the first `min_tokens` tokens."""
    answer = (A, B, A, B)
    before = answer[:num_before] if num is None or num_before < num else ()
    found = ended(plain, answer[len(before) :], before, stop=("b",), min_tokens=min_tokens)
    if num is None:
        assert (found.finish_reason, found.text.text) == (None, "abab")
        assert found.num_tokens == 4 - len(before)
    else:
        assert (found.finish_reason, found.stop_reason) == ("stop", "b")
        assert found.num_tokens == num - len(before)
        assert found.text.text == "abab"[: num - 1]


def test_a_stop_string_over_two_tokens_ends_at_the_second(plain: LLM) -> None:
    found = ended(plain, (A, B, C, D), stop=("bc",))
    assert (found.num_tokens, found.text.text, found.text_ends) == (3, "a", [1, 2, 1])
    kept = ended(plain, (A, B, C, D), stop=("bc",), include_stop_str_in_output=True)
    assert (kept.num_tokens, kept.text.text, kept.text_ends) == (3, "abc", [1, 2, 3])


def test_a_stop_token_ends_and_says_which_it_was(plain: LLM) -> None:
    found = ended(plain, (A, C, B), stop_token_ids=(C, 9))
    assert (found.num_tokens, found.finish_reason, found.stop_reason) == (2, "stop", C)
    assert (found.text.text, found.text_ends) == ("a", [1, 1])
    kept = ended(plain, (A, C, B), stop_token_ids=(C, 9), include_stop_str_in_output=True)
    assert (kept.num_tokens, kept.text.text, kept.text_ends) == (2, "ac", [1, 2])


def test_a_stop_token_that_spells_more_than_a_stop_string_is_kept_whole() -> None:
    """The token itself ends the answer, whatever its text contains."""
    (token,) = words().encode("abc", add_special=False)
    params = SamplingParams(stop=("b",), stop_token_ids=(token,), include_stop_str_in_output=True)
    found = cut(new_request(words(), params), Verdict((), (token,), Origin.BONUS))
    assert (found.text.text, found.stop_reason) == ("abc", token)


class OnlyAB:
    """A grammar that is over after "ab"."""

    def binds(self, output: Sequence[int], more: Sequence[int] = ()) -> bool:  # noqa: ARG002
        return True

    def may_loosen(self, output: Sequence[int]) -> bool:  # noqa: ARG002
        return False

    def is_over(self, output: Sequence[int], more: Sequence[int] = ()) -> bool:
        return (*output, *more)[:2] == (A, B)


@pytest.mark.parametrize("num_before", [0, 1])
def test_the_end_of_a_grammar_ends_the_answer(plain: LLM, num_before: int) -> None:
    """Tokens accepted after the grammar's end are not emitted."""
    answer = (A, B, C, D)
    request = new_request(plain.tokenizer, SamplingParams(max_tokens=9), output=answer[:num_before])
    request.grammar = cast(Grammar, OnlyAB())
    tokens = answer[num_before:]
    found = cut(request, Verdict(tuple(range(len(tokens) - 1)), tokens, Origin.BONUS))
    assert (found.num_tokens, found.finish_reason) == (2 - num_before, "stop")
    assert (found.text.text, found.stop_reason) == ("ab", None)


def test_eos_ends_without_a_reason_unless_it_was_named(plain: LLM) -> None:
    found = ended(plain, (A, EOS, B))
    assert (found.num_tokens, found.finish_reason, found.stop_reason) == (2, "stop", None)
    assert (found.text.text, found.text_ends) == ("a", [1, 1])
    named = ended(plain, (A, EOS, B), stop_token_ids=(EOS,))
    assert (named.num_tokens, named.stop_reason) == (2, EOS)
    ignored = ended(plain, (A, EOS, B), ignore_eos=True)
    assert (ignored.num_tokens, ignored.finish_reason, ignored.text.text) == (3, None, "ab")
    both = ended(plain, (A, EOS, B), ignore_eos=True, stop_token_ids=(EOS,))
    assert (both.num_tokens, both.stop_reason) == (2, EOS)


@pytest.mark.parametrize("num_left", [1, 2, 3, 4])
def test_an_answer_is_as_long_as_it_may_be(plain: LLM, num_left: int) -> None:
    found = ended(plain, (A, B, C), output=(D,), max_tokens=1 + num_left)
    assert found.num_tokens == min(3, num_left)
    assert found.finish_reason == ("length" if num_left <= 3 else None)
    assert found.stop_reason is None
    assert found.text.text == "dabc"[: 1 + num_left]
    assert found.text_ends == list(range(2, 2 + found.num_tokens))


def test_what_ends_at_the_last_token_did_stop(plain: LLM) -> None:
    found = ended(plain, (A, B), max_tokens=2, stop=("b",))
    assert (found.finish_reason, found.stop_reason) == ("stop", "b")
    assert ended(plain, (A, EOS), max_tokens=2).finish_reason == "stop"
