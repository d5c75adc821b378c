"""The automaton knows what a search of the whole text would find, and stays small."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from forerun.drafters.suffix_automaton import SuffixAutomaton

TEXTS = st.lists(st.integers(0, 3), min_size=1, max_size=40)


def automaton_of(text: Sequence[int], max_match: int = 8) -> SuffixAutomaton:
    automaton = SuffixAutomaton(max_match)
    for token in text:
        automaton.append(token)
    return automaton


def ranked_followers(text: Sequence[int], string: Sequence[int]) -> list[int]:
    """By looking at every place of the text: most frequent first, then most recent."""
    found: dict[int, tuple[int, int]] = {}
    for end in range(len(string), len(text)):
        if text[end - len(string) : end] == string:
            count, _ = found.get(text[end], (0, 0))
            found[text[end]] = (count + 1, end)
    return sorted(found, key=lambda token: found[token], reverse=True)


def longest_known_tail(
    text: Sequence[int], tail: Sequence[int], max_match: int, last_end: int
) -> int:
    """The longest end of `tail` that ends in `text` no later than at `last_end`."""
    for length in range(min(max_match, len(tail)), 0, -1):
        string = tail[len(tail) - length :]
        if any(text[end - length : end] == string for end in range(length, last_end + 1)):
            return length
    return 0


@given(TEXTS, st.integers(1, 8))
@example([0] * 40, 3)
@example([0, 1] * 20, 5)
def test_it_equals_a_search_of_the_whole_text(text: list[int], max_match: int) -> None:
    automaton = SuffixAutomaton(max_match)
    for end, token in enumerate(text, 1):
        automaton.append(token)
        seen = text[:end]
        match = automaton.repeated_tail()
        assert match.length == longest_known_tail(seen, seen, max_match, end - 1)
        if match.length:
            expected = ranked_followers(seen, seen[end - match.length :])
            assert automaton.followers(match) == expected
            assert automaton.best(match) == expected[0]
            assert automaton.is_unanimous(match) == (len(expected) == 1)


@given(TEXTS, TEXTS, st.integers(1, 8))
def test_a_foreign_tail_is_found_as_by_search(
    text: list[int], tail: list[int], max_match: int
) -> None:
    automaton = automaton_of(text, max_match)
    match = automaton.find_tail(tail)
    assert match.length == longest_known_tail(text, tail, max_match, len(text))
    if match.length:
        assert automaton.followers(match) == ranked_followers(
            text, tail[len(tail) - match.length :]
        )


@given(TEXTS, st.integers(1, 8), st.integers(1, 12))
def test_following_a_match_keeps_its_context(text: list[int], max_match: int, steps: int) -> None:
    """Along a chain of guesses, each is the best after the guesses before it."""
    automaton = automaton_of(text, max_match)
    match, path = automaton.continued(automaton.repeated_tail()), list(text)
    for _ in range(steps):
        if not match.length:
            return
        assert automaton.best(match) == ranked_followers(text, path[len(path) - match.length :])[0]
        token = automaton.best(match)
        path.append(token)
        match = automaton.continued(automaton.after(match, token))


@pytest.mark.parametrize("text", [[7] * 500, list(range(500)), [1, 2, 1, 3, 1] * 100])
def test_it_grows_in_step_with_the_text(text: list[int]) -> None:
    automaton = automaton_of(text)
    assert len(automaton) == len(text)
    assert automaton.num_edges <= 3 * len(text)


def test_an_empty_text_has_no_match() -> None:
    automaton = SuffixAutomaton(4)
    assert automaton.repeated_tail().length == 0
    assert automaton.find_tail([1, 2]).length == 0
