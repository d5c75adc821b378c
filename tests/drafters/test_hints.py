"""A glance tells where a drafter has nothing to say, and never hides a guess."""

from __future__ import annotations

import random
from typing import Any

import pytest

from forerun.drafters import Budget, GivenPrediction, HintingDrafter, SuffixLookup
from forerun.drafters.suffix_pairs import TokenPairs
from replay import Answer

BUDGET = Budget(8)


def _texts(num: int) -> list[list[int]]:
    """Random texts of few and of many different tokens: some of their ends are new, some not."""
    rng = random.Random(7)
    return [
        [rng.randrange(vocab) for _ in range(60)] for vocab in (3, 8, 20, 60) for _ in range(num)
    ]


@pytest.mark.parametrize("least_chance", [0.0, 0.3, 0.6])
@pytest.mark.parametrize("options", [{}, {"min_chance": 0.0}, {"min_match": 2}])
def test_a_suffix_that_would_guess_is_never_passed_over(
    least_chance: float, options: dict[str, Any]
) -> None:
    budget, num_guesses, num_passed_over = Budget(8, least_chance=least_chance), 0, 0
    drafter = SuffixLookup(**options)
    for number, text in enumerate(_texts(6)):
        request = Answer(number, tuple(text[:10]), [], len(text))
        drafter.begin(request)
        for token in text[10:]:
            request.tokens.append(token)
            request.output.append(token)
            hint = drafter.may_guess(request, budget)
            (proposal,) = drafter.propose([request], [budget])
            if not hint:  # what it was asked for last, it has learnt from: it may know more now
                hint = drafter.may_guess(request, budget)
            assert hint == (len(proposal) > 0)
            num_guesses += len(proposal) > 0
            num_passed_over += not hint
        drafter.end(request)
    assert num_guesses > 50
    assert num_passed_over > 200


def test_a_prediction_that_would_guess_is_never_passed_over() -> None:
    rng, drafter, num_passed_over = random.Random(3), GivenPrediction(), 0
    for number, text in enumerate(_texts(6)):
        changed = [rng.randrange(60) if rng.random() < number / 24 else token for token in text]
        request = Answer(number, (1,), [], len(text))
        request.prediction = tuple(changed)
        drafter.begin(request)
        for token in text:
            hint = drafter.may_guess(request, BUDGET)
            (proposal,) = drafter.propose([request], [BUDGET])
            assert hint == (len(proposal) > 0)
            num_passed_over += not hint
            request.tokens.append(token)
            request.output.append(token)
        drafter.end(request)
    assert num_passed_over > 100


def test_who_looks_beyond_its_own_text_or_for_branches_is_asked() -> None:
    drafter, request = SuffixLookup(), Answer(0, (1, 2, 3), [], 9)
    drafter.begin(request)
    assert not drafter.may_guess(request, BUDGET)
    assert drafter.may_guess(request, Budget(8, num_branches=2))
    request.cache_salt = "nobody wrote anything"
    assert not drafter.may_guess(request, BUDGET)
    other = Answer(1, (), [5, 6], 9, cache_salt="somebody did")
    drafter.begin(other)
    drafter.end(other)
    request.cache_salt = other.cache_salt
    assert drafter.may_guess(request, BUDGET)


def test_pairs_know_what_is_new() -> None:
    pairs = TokenPairs()
    found = []
    for end in range(1, 8):
        pairs.extend([1, 2, 3, 1, 2, 1, 3][:end])
        found.append((pairs.is_repeated, pairs.num_followers))
    assert found == [
        (False, 0),
        (False, 0),
        (False, 0),
        (False, 1),
        (True, 1),
        (False, 1),
        (False, 1),
    ]
    pairs.extend([1, 2, 3, 1, 2, 1, 3, 2])
    assert (pairs.is_repeated, pairs.num_followers) == (False, 2)  # 3, then 1


def test_they_hint() -> None:
    assert isinstance(SuffixLookup(), HintingDrafter)
    assert isinstance(GivenPrediction(), HintingDrafter)
