"""Suffix lookup: the longest match, the commonest continuation, as much as it can be trusted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.drafters import Budget, SuffixLookup
from forerun.errors import InvalidOption
from forerun.sampling import Noise
from forerun.types import Acceptance, Proposal, SamplingParams

GREEDY = SamplingParams(temperature=0)


@dataclass
class View:
    """A request as drafters see it, of a caller."""

    prompt: tuple[int, ...]
    output: tuple[int, ...] = ()
    id: int = 0
    cache_salt: str | None = None
    params: SamplingParams = GREEDY
    noise: Noise = field(default_factory=lambda: Noise(7))
    round_idx: int = 0
    grammar: None = None
    prediction: tuple[int, ...] = ()

    @property
    def tokens(self) -> Sequence[int]:
        return (*self.prompt, *self.output)


def guesses(drafter: SuffixLookup, view: View, depth: int = 4, num_branches: int = 1) -> Proposal:
    drafter.begin(view)
    proposal = drafter.propose([view], [Budget(depth, num_branches)])[0]
    drafter.end(view)
    return proposal


def eager() -> SuffixLookup:
    """Guesses as deep as it may."""
    return SuffixLookup(min_chance=0.0)


def test_the_longest_match_wins_over_the_commonest_and_the_latest() -> None:
    text = (9, 1, 2, 3, 5, 0, 2, 3, 6, 0, 2, 3, 6, 9, 1, 2, 3)
    assert guesses(eager(), View(text), depth=1).tokens == (5,)


def test_of_several_continuations_the_commonest_wins_then_the_latest() -> None:
    assert guesses(eager(), View((1, 5, 1, 5, 1, 6, 1)), depth=1).tokens == (5,)
    assert guesses(eager(), View((1, 5, 1, 6, 1)), depth=1).tokens == (6,)


def roots_of(proposal: Proposal) -> list[int]:
    return [proposal.tokens[node] for node in proposal.tree.children(-1)]


def test_branches_are_the_alternatives_by_count() -> None:
    text = View((2, 1, 7, 3, 1, 5, 4, 1, 6, 8, 1, 5, 9, 1))
    proposal = guesses(eager(), text, depth=2, num_branches=2)
    assert roots_of(proposal) == [5, 6]
    assert proposal.depth == 2


def test_shorter_contexts_give_the_branches_that_the_longest_lacks() -> None:
    text = View((1, 7, 1, 5, 1, 6, 1, 5, 1))
    assert roots_of(guesses(eager(), text, num_branches=3)) == [6, 5, 7]


def test_siblings_share_the_chance_that_the_first_guess_leaves() -> None:
    """A doubtful first guess leaves room for a second, a sure one does not."""
    source = tuple(range(10, 50))
    doubtful = View((*source[:5], 5, 12, 30, 6, *source[:3]))
    sure = View((*source, 5, source[19], 60), output=source[:20])
    drafter = SuffixLookup()
    assert len(roots_of(guesses(drafter, doubtful, num_branches=2))) == 2
    assert roots_of(guesses(drafter, sure, num_branches=2)) == [source[20]]
    assert roots_of(guesses(eager(), sure, num_branches=2)) == [source[20], 60]


def test_a_text_that_repeats_itself_is_continued_past_its_end() -> None:
    assert guesses(eager(), View((1, 2, 3, 1, 2)), depth=7).tokens == (3, 1, 2, 3, 1, 2, 3)


def test_a_longer_match_guesses_more() -> None:
    source = tuple(range(10, 50))
    depths = [
        guesses(SuffixLookup(), View((*source, 5, *source[:length])), depth=16).depth
        for length in (1, 3, 20)
    ]
    assert depths == sorted(set(depths))


def test_an_output_that_copies_is_trusted_further_than_one_that_does_not() -> None:
    source = tuple(range(10, 60))
    copying = View((*source, 5), output=(*source[:12], 7, source[20]))
    inventing = View((*source, 5), output=(*range(100, 112), 7, source[20]))
    drafter = SuffixLookup()
    assert guesses(drafter, copying, 8).depth > guesses(drafter, inventing, 8).depth


def test_matches_below_the_minimum_are_silent() -> None:
    text = View((1, 2, 3, 4, 2, 3))
    assert len(guesses(SuffixLookup(min_match=2, min_chance=0), text)) > 0
    assert len(guesses(SuffixLookup(min_match=3, min_chance=0), text)) == 0


@given(st.lists(st.integers(0, 3), min_size=2, max_size=40), st.integers(1, 5))
def test_careful_guesses_are_a_function_of_the_text(tokens: list[int], prompt_len: int) -> None:
    """However the rounds fell, the next proposal is that of a drafter that meets the text new."""
    prompt, output = tuple(tokens[:prompt_len]), tuple(tokens[prompt_len:])
    drafter = SuffixLookup()
    drafter.begin(View(prompt))
    for end in range(0, len(output) + 1, 3):
        view = View(prompt, output[:end])
        proposal = drafter.propose([view], [Budget(4)])[0]
        assert proposal.tokens == guesses(SuffixLookup(), view).tokens


def told(drafter: SuffixLookup, caller: str | None, view: View) -> bool:
    """Whether a request draws on what `caller` was answered before."""
    guesses(drafter, View((0,), output=(50, 51, 52, 53, 54), id=1, cache_salt=caller))
    return guesses(drafter, view, depth=2).tokens == (53, 54)


ASKED = (7, 50, 51, 52)


def test_a_caller_shares_with_itself_alone() -> None:
    assert told(eager(), "a", View(ASKED, cache_salt="a"))
    assert not told(eager(), "a", View(ASKED, cache_salt="b"))
    assert not told(eager(), "a", View(ASKED))
    assert not told(eager(), None, View(ASKED))


def test_sharing_can_be_switched_off() -> None:
    drafter = SuffixLookup(min_chance=0.0, max_shared_tokens=0)
    assert not told(drafter, "a", View(ASKED, cache_salt="a"))


def test_a_request_that_ends_twice_or_never_began_is_kept_once() -> None:
    drafter = eager()
    view = View((0,), output=(1, 2, 3), cache_salt="a")
    guesses(drafter, view)
    kept = drafter.num_shared_tokens
    drafter.end(view)
    drafter.end(View((9,), output=(4, 5), id=99, cache_salt="a"))
    assert drafter.num_shared_tokens == kept == 4


def test_shared_memory_is_bounded() -> None:
    drafter = SuffixLookup(max_shared_tokens=100)
    for idx in range(50):
        output = tuple(range(idx, idx + 30))
        guesses(drafter, View((0,), output, id=idx, cache_salt=f"caller {idx % 3}"))
        assert drafter.num_shared_tokens <= 100


@pytest.mark.parametrize(
    ("params", "is_told"),
    [
        (SamplingParams(temperature=0.8, seed=1), True),
        (SamplingParams(temperature=0.8, acceptance=Acceptance.REJECTION), True),
        (SamplingParams(temperature=0.8, seed=1, acceptance=Acceptance.REJECTION), False),
        (SamplingParams(temperature=0, seed=1, acceptance=Acceptance.REJECTION), True),
    ],
)
def test_guesses_never_know_the_noise_that_judges_them(
    params: SamplingParams, is_told: bool
) -> None:
    """A seed may have been used before: then an earlier output tells of this request's noise."""
    assert told(eager(), "a", View(ASKED, cache_salt="a", params=params)) is is_told


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_match": 0}, "1 ≤ min ≤ max"),
        ({"min_match": 9, "max_match": 8}, "1 ≤ min ≤ max"),
        ({"min_chance": 1.0}, "0 ≤ x < 1"),
        ({"max_shared_tokens": -1}, "turns sharing off"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        SuffixLookup(**options)


def test_each_guess_carries_its_chance_given_those_before_it() -> None:
    repeated = guesses(SuffixLookup(min_chance=0.0), View((1, 2, 3, 4, 5, 6, 1, 2, 3, 4)))
    chances = [draw.chance for draw in repeated.draws]
    assert len(chances) == 4
    assert all(chance is not None and 0 < chance < 1 for chance in chances)
    careful = guesses(SuffixLookup(min_chance=0.6), View((1, 2, 3, 4, 5, 6, 1, 2, 3, 4)))
    assert math.prod(draw.chance or 0 for draw in careful.draws) >= 0.6


def test_guesses_below_the_least_chance_that_pays_are_left_out() -> None:
    view, drafter = View((1, 2, 3, 4, 5, 6, 1, 2, 3, 4)), SuffixLookup(min_chance=0.0)
    drafter.begin(view)
    lengths = [
        len(drafter.propose([view], [Budget(4, least_chance=least)])[0]) for least in (0, 0.6, 0.99)
    ]
    assert lengths[0] == 4
    assert lengths[0] > lengths[1] > lengths[2] == 0


def test_what_others_wrote_is_trusted_more_while_it_is_repeated() -> None:
    drafter, output = SuffixLookup(), tuple(range(50, 90))
    guesses(drafter, View((0,), output=output, id=1, cache_salt="a"))
    depths = []
    drafter.begin(View((7, 50, 51), id=2, cache_salt="a"))
    for end in range(2, 14, 2):
        view = View((7, 50, 51), output=output[2:end], id=2, cache_salt="a")
        depths.append(len(drafter.propose([view], [Budget(16, least_chance=0.4)])[0]))
    assert depths[0] < 8
    assert depths[-1] > 10
    assert depths == sorted(depths)
