"""What the drafter over a book guesses, and how far it trusts it."""

from __future__ import annotations

import pytest

from forerun.drafters import Budget, Phrases
from forerun.types import Proposal
from tests.drafters.phrases.books import book_of
from tests.drafters.test_suffix import View

BOOK = book_of(*([[1, 2, 3, 4, 5, 6, 7, 8, 9]] * 30), *([[20, 21]] * 6), *([[20, 22]] * 5))


def guesses(drafter: Phrases, request: View, budget: Budget) -> Proposal:
    (found,) = drafter.propose([request], [budget])
    return found


def test_it_says_what_usually_follows_with_its_chances() -> None:
    drafter, request = Phrases(BOOK), View(prompt=(1, 2))
    drafter.begin(request)
    found = guesses(drafter, request, Budget(5))
    assert found.tokens == (3, 4, 5, 6, 7)
    assert len(found.chances) == 5
    assert all(0.6 < chance < 0.8 for chance in found.chances)  # 30 of 31, and little trust yet


def test_a_chain_ends_where_its_chance_is_not_worth_it() -> None:
    drafter, request = Phrases(BOOK), View(prompt=(1, 2))
    drafter.begin(request)
    assert len(guesses(drafter, request, Budget(5, least_chance=0.5))) == 2
    assert len(guesses(drafter, request, Budget(5, least_chance=0.9))) == 0
    assert len(guesses(drafter, request, Budget(0))) == 0
    assert len(guesses(drafter, request, Budget(8))) == 7  # and no further than the book


@pytest.mark.parametrize("least_chance", [0.0, 0.3, 0.5, 0.7, 0.9])
@pytest.mark.parametrize("prompt", [(1,), (20,), (99,)])
def test_a_glance_tells_whether_there_is_a_guess(
    prompt: tuple[int, ...], least_chance: float
) -> None:
    drafter, request = Phrases(BOOK), View(prompt=prompt)
    drafter.begin(request)
    budget = Budget(4, least_chance=least_chance)
    may = drafter.may_guess(request, budget)
    assert may == (len(guesses(drafter, request, budget)) > 0)
    assert drafter.may_guess(request, budget) == may  # however often


def test_a_text_that_goes_elsewhere_is_trusted_less() -> None:
    drafter, request = Phrases(BOOK), View(prompt=(1,))
    drafter.begin(request)
    first = guesses(drafter, request, Budget(1)).chances[0]
    for _ in range(6):
        request.output = (*request.output, 20, 1)  # neither is what the book says
        last = guesses(drafter, request, Budget(1)).chances[0]
        assert last < first
        first = last


def test_a_text_of_the_book_is_trusted_more() -> None:
    drafter, request = Phrases(BOOK), View(prompt=(1,))
    drafter.begin(request)
    chances = []
    for token in range(2, 8):
        chances.append(guesses(drafter, request, Budget(1)).chances[0])
        request.output = (*request.output, token)
    assert chances == sorted(chances)
    assert chances[-1] > chances[0]


def test_several_tokens_at_once_are_judged_up_to_the_first_miss() -> None:
    """There are as many trials as judged tokens, whether these came one by one or together."""
    one, many = Phrases(BOOK), Phrases(BOOK)
    slow, fast = View(id=1, prompt=(1,)), View(id=2, prompt=(1,))
    one.begin(slow)
    many.begin(fast)
    guesses(many, fast, Budget(6))
    fast.output = (*fast.output, 2, 3, 4)
    for token in (2, 3, 4):
        guesses(one, slow, Budget(1))
        slow.output = (*slow.output, token)
    budget = Budget(1)
    assert guesses(one, slow, budget).chances == guesses(many, fast, budget).chances


def test_to_be_asked_twice_changes_nothing() -> None:
    once, twice = Phrases(BOOK), Phrases(BOOK)
    request, found = View(prompt=(1,)), []
    for drafter, num in ((once, 1), (twice, 3)):
        drafter.begin(request)
        request.output = ()
        for _ in range(num):
            guesses(drafter, request, Budget(3))
        request.output = (2, 3, 4, 5)
        found.append(guesses(drafter, request, Budget(3)))
    assert found[0].chances == found[1].chances


def test_requests_are_trusted_by_themselves() -> None:
    drafter = Phrases(BOOK)
    lost, other = View(id=1, prompt=(1,)), View(id=2, prompt=(1,))
    drafter.begin(lost)
    for _ in range(5):
        guesses(drafter, lost, Budget(1))
        lost.output = (*lost.output, 20, 1)
    drafter.begin(other)
    fresh, worn = (guesses(drafter, r, Budget(1)).chances[0] for r in (other, lost))
    assert fresh > worn
    drafter.end(lost)
    drafter.end(other)
    assert drafter.num_requests == 0
