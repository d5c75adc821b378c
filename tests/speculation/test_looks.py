"""Looks become rarer where no guess pays, and frequent again at once where one does."""

from __future__ import annotations

from forerun.speculation.choice import Choice, Reason
from forerun.speculation.looks import Looks
from tests.contracts.test_drafters import View

COST = 0.035  # a look that finds nothing, on SmolLM2


def request(round_idx: int) -> View:
    return View((1, 2, 3), id=7, round_idx=round_idx)


def due_rounds(looks: Looks, num_rounds: int, gain: float, cost: float = COST) -> list[bool]:
    due = []
    for _ in range(num_rounds):
        due.append(looks.is_due(7))
        if due[-1]:
            looks.looked(7, gain, cost)
    return due


def test_ever_more_rarely_and_every_eighth_round_in_the_end() -> None:
    due = due_rounds(Looks(), 300, gain=0.0)
    assert due[:6] == [True, False, True, False, False, True]
    assert sum(due[-40:]) == 5


def test_never_more_than_seven_rounds_are_missed() -> None:
    due = due_rounds(Looks(), 300, gain=0.0)
    assert "FFFFFFFF" not in "".join("T" if look else "F" for look in due)


def test_what_pays_is_followed() -> None:
    looks = Looks()
    due_rounds(looks, 100, gain=0.0)
    while not looks.is_due(7):
        pass
    looks.looked(7, 0.5, COST)
    assert all(due_rounds(looks, 20, gain=0.5))


def test_what_pays_little_is_not_waited_for_long() -> None:
    """A guess that gains as much as two looks cost justifies few looks."""
    little, much, cost = Looks(), Looks(), 0.008
    for looks, gain in ((little, 2 * cost), (much, 1.0)):
        due_rounds(looks, 100, gain=0.0, cost=cost)
        while not looks.is_due(7):
            pass
        looks.looked(7, gain, cost)
    assert sum(due_rounds(little, 8, 0.0, cost)) < sum(due_rounds(much, 8, 0.0, cost))


def test_requests_are_apart_and_forgotten() -> None:
    looks = Looks()
    due_rounds(looks, 100, gain=0.0)
    assert looks.is_due(8)
    looks.end(7)
    assert due_rounds(looks, 6, gain=0.0) == due_rounds(Looks(), 6, gain=0.0)


def test_a_look_that_costs_next_to_nothing_is_always_worth_it() -> None:
    looks = Looks()
    for _ in range(10_000):
        assert looks.is_due(7)
        looks.looked(7, gain=0.0, cost=0.002)


def test_who_was_taken_is_asked_again_for_some_rounds() -> None:
    """A chosen way is kept for some rounds, or until another is chosen."""
    looks, choice = Looks(), Choice(Reason.PAYS, "head", depth=3)
    looks.weighed(request(10), ["head"], choice)
    assert looks.stay(request(11)) is choice
    assert looks.stay(request(40)) is None
    assert looks.asleep(request(11)) == ()
    looks.weighed(request(12), ["head"], Choice(Reason.NOTHING_PAYS))
    assert looks.stay(request(13)) is None
    assert looks.requests == {7}
    looks.end(7)
    assert looks.requests == set()


def test_who_is_not_taken_sleeps_ever_longer_until_it_is() -> None:
    looks = Looks()
    weighed = [idx for idx in range(300) if _is_weighed(looks, idx, Choice(Reason.NOTHING_PAYS))]
    assert weighed == [0, 1, 3, 7, 15, 31, 63, 127, 191, 255]
    assert _is_weighed(looks, 400, Choice(Reason.PAYS, "head", depth=3))
    assert _is_weighed(looks, 401, Choice(Reason.NOTHING_PAYS))
    assert _is_weighed(looks, 402, Choice(Reason.NOTHING_PAYS))


def test_who_is_outbid_sleeps_seven_rounds_at_most() -> None:
    """A wrong prediction runs out of guesses after two tokens, and then a head is wanted again."""
    looks, other = Looks(), Choice(Reason.PAYS, "prediction", depth=3)
    weighed = [idx for idx in range(300) if _is_weighed(looks, idx, other)]
    assert weighed[:6] == [0, 1, 3, 7, 14, 21]
    assert not _is_weighed(looks, weighed[-1] + 6, other)
    assert _is_weighed(looks, weighed[-1] + 7, other)
    assert _is_weighed(looks, 400, Choice(Reason.NOTHING_PAYS))
    assert not _is_weighed(looks, 463, Choice(Reason.NOTHING_PAYS))


def _is_weighed(looks: Looks, round_idx: int, choice: Choice) -> bool:
    if "head" in looks.asleep(request(round_idx)):
        return False
    looks.weighed(request(round_idx), ["head"], choice)
    return True


def test_who_sleeps_long_sleeps_deeply() -> None:
    looks, plain = Looks(), Choice(Reason.NOTHING_PAYS)
    deeply = [looks.weighed(request(100 * idx), ["head"], plain) for idx in range(6)]
    assert deeply == [[], [], [], [], [("head", 16)], [("head", 32)]]
    other = Choice(Reason.PAYS, "prediction", depth=3)
    assert looks.weighed(request(600), ["head"], other) == []


def test_a_probe_is_no_reason_to_stay() -> None:
    looks = Looks()
    looks.weighed(request(0), ["head"], Choice(Reason.PROBE, "head", depth=1))
    assert looks.stay(request(1)) is None
    assert looks.asleep(request(1)) == ()


def test_who_rested_hears_of_a_round_before_it_is_asked() -> None:
    looks = Looks()
    looks.rest(request(5), "head")
    assert looks.requests == {7}
    assert not looks.rested(request(68))
    assert looks.rested(request(69)) == ["head"]
    assert looks.asleep(request(69)) == ["head"]
    assert not looks.rested(request(70))
    assert not looks.asleep(request(70))
    looks.end(7)
    assert not looks.requests
