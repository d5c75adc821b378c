"""Guesses that nobody verified, scored by the text."""

from __future__ import annotations

from forerun.planning.open_offers import OpenOffer, OpenOffers, Score


def test_a_chain_is_followed_over_several_rounds() -> None:
    offer = OpenOffer([[5, 6, 7, 8]])
    assert offer.follow([5]) == Score(1, 1, 0, 0)
    assert offer.follow([6, 7]) == Score(3, 3, 1, 0)
    assert offer.follow([9]) == Score(4, 3, 3, 0)
    assert not offer.is_open


def test_an_offer_ends_with_its_last_guess() -> None:
    offer = OpenOffer([[5, 6]])
    assert offer.follow([5, 6, 7]) == Score(2, 2, 0, 0)
    assert not offer.is_open


def test_the_branch_that_held_is_named_and_followed() -> None:
    assert OpenOffer([[1, 2], [3, 4]]).follow([3, 4]) == Score(2, 2, 0, 1)
    assert OpenOffer([[1, 2], [3, 4]]).follow([9]) == Score(1, 0, 0, 1)


def test_beside_an_open_offer_only_first_guesses_are_scored() -> None:
    offers = OpenOffers()
    offers.add(0, "lookup", [[1, 2, 3]])
    assert offers.follow(0, "lookup", [1], was_used=False) == [Score(1, 1, 0, 0)]
    offers.add(0, "lookup", [[9, 9]])
    assert offers.follow(0, "lookup", [2], was_used=False) == [
        Score(1, 0, 0, 0),
        Score(2, 2, 1, 0),
    ]


def test_an_offer_that_was_used_is_scored_in_full() -> None:
    offers = OpenOffers()
    offers.add(0, "lookup", [[1, 2, 3]])
    offers.follow(0, "lookup", [1], was_used=False)
    offers.add(0, "lookup", [[2, 4]])
    assert offers.follow(0, "lookup", [2, 4, 5], was_used=True) == [Score(2, 2, 0, 0)]


def test_silence_scores_nothing_and_the_end_forgets() -> None:
    offers = OpenOffers()
    offers.add(0, "lookup", ())
    assert offers.follow(0, "lookup", [1], was_used=False) == []
    offers.add(0, "lookup", [[1, 2]])
    offers.end(0)
    assert offers.drafters(0) == []


def test_what_the_drafter_said_comes_with_the_score() -> None:
    offers = OpenOffers()
    offers.add(0, "suffix", [[1, 2]], words=[0.9, 0.4])
    assert offers.words(0, "suffix") == [0.9, 0.4]
    (score,) = offers.follow(0, "suffix", [1, 3], was_used=True)
    assert score == Score(2, 1, 0, 0, [0.9, 0.4])
    assert offers.words(0, "suffix") == ()
