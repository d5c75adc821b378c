"""Looking less often where nothing pays, and at once again where something does."""

from __future__ import annotations

from forerun.engine.lookout import Lookout


def looks(lookout: Lookout, num_rounds: int, found: bool) -> list[bool]:
    due = []
    for _ in range(num_rounds):
        due.append(lookout.is_due(7))
        if due[-1]:
            lookout.looked(7, found)
    return due


def test_every_round_at_first_and_every_fourth_in_the_end() -> None:
    due = looks(Lookout(), 100, found=False)
    assert all(due[:8])
    assert sum(due[-40:]) == 10


def test_never_more_than_three_rounds_are_missed() -> None:
    due = looks(Lookout(), 300, found=False)
    assert "FFFF" not in "".join("T" if look else "F" for look in due)


def test_what_is_found_is_followed() -> None:
    lookout = Lookout()
    looks(lookout, 100, found=False)
    while not lookout.is_due(7):
        pass
    lookout.looked(7, found=True)
    assert all(looks(lookout, 20, found=True))


def test_requests_are_apart_and_forgotten() -> None:
    lookout = Lookout()
    looks(lookout, 100, found=False)
    assert lookout.is_due(8)
    lookout.end(7)
    assert all(looks(lookout, 8, found=False))
