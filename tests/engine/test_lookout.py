"""Looking less often where nothing pays, and at once again where something does."""

from __future__ import annotations

from forerun.engine.lookout import Lookout

COST = 0.035  # what a look of SmolLM2 takes that finds nothing


def looks(lookout: Lookout, num_rounds: int, gain: float, cost: float = COST) -> list[bool]:
    due = []
    for _ in range(num_rounds):
        due.append(lookout.is_due(7))
        if due[-1]:
            lookout.looked(7, gain, cost)
    return due


def test_ever_more_rarely_and_every_eighth_round_in_the_end() -> None:
    due = looks(Lookout(), 300, gain=0.0)
    assert due[:6] == [True, False, True, False, False, True]
    assert sum(due[-40:]) == 5


def test_never_more_than_seven_rounds_are_missed() -> None:
    due = looks(Lookout(), 300, gain=0.0)
    assert "FFFFFFFF" not in "".join("T" if look else "F" for look in due)


def test_what_pays_is_followed() -> None:
    lookout = Lookout()
    looks(lookout, 100, gain=0.0)
    while not lookout.is_due(7):
        pass
    lookout.looked(7, 0.5, COST)
    assert all(looks(lookout, 20, gain=0.5))


def test_what_pays_little_is_not_waited_for_long() -> None:
    """A guess that brings as much as two looks cost is no reason for many."""
    little, much, cost = Lookout(), Lookout(), 0.008
    for lookout, gain in ((little, 2 * cost), (much, 1.0)):
        looks(lookout, 100, gain=0.0, cost=cost)
        while not lookout.is_due(7):
            pass
        lookout.looked(7, gain, cost)
    assert sum(looks(little, 8, 0.0, cost)) < sum(looks(much, 8, 0.0, cost))


def test_requests_are_apart_and_forgotten() -> None:
    lookout = Lookout()
    looks(lookout, 100, gain=0.0)
    assert lookout.is_due(8)
    lookout.end(7)
    assert looks(lookout, 6, gain=0.0) == looks(Lookout(), 6, gain=0.0)


def test_a_look_that_costs_next_to_nothing_is_always_worth_it() -> None:
    lookout = Lookout()
    for _ in range(10_000):
        assert lookout.is_due(7)
        lookout.looked(7, gain=0.0, cost=0.002)
