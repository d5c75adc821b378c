"""How far a context is trusted: more while the output copies, and never by a leap."""

from __future__ import annotations

from itertools import pairwise

import pytest

from forerun.drafters.suffix_trust import Trust


def chances(trust: Trust, hits: list[bool], length: int = 2) -> list[float]:
    """The chance of a context before each token and after the last."""
    found = [trust.chance(length, is_unanimous=True)]
    for hit in hits:
        trust.observe(length, is_unanimous=True, is_hit=hit)
        found.append(trust.chance(length, is_unanimous=True))
    return found


def test_hits_raise_it_and_misses_lower_it_without_a_leap() -> None:
    trust = Trust()
    rising = chances(trust, [True] * 12)
    falling = chances(trust, [False] * 12)
    assert all(before < after for before, after in pairwise(rising))
    assert all(before > after for before, after in pairwise(falling))
    assert all(abs(after - before) < 0.12 for before, after in pairwise(rising + falling))


def test_what_is_taken_to_be_right_counts_as_copying() -> None:
    trust = Trust()
    after = [trust.chance(2, is_unanimous=True, num_right=num) for num in range(6)]
    assert after == sorted(after)
    assert after[-1] > after[0] + 0.1


def test_a_context_that_leads_astray_is_trusted_less_than_others() -> None:
    trust = Trust()
    other = trust.chance(8, is_unanimous=True)
    for _ in range(30):
        trust.observe(2, is_unanimous=True, is_hit=False)
        trust.observe(8, is_unanimous=True, is_hit=True)
    assert trust.chance(2, is_unanimous=True) < 0.3
    assert trust.chance(8, is_unanimous=True) > other


@pytest.mark.parametrize("is_unanimous", [False, True])
def test_no_context_is_no_trial_but_ends_a_run(is_unanimous: bool) -> None:
    """Other contexts are trusted less after it, and exactly as after a miss of any of them."""
    none, missed = Trust(), Trust()
    copying = chances(none, [True] * 6)[-1]
    chances(missed, [True] * 6)
    none.observe(0, is_unanimous, is_hit=False)
    missed.observe(64, is_unanimous, is_hit=False)
    assert none.chance(2, is_unanimous=True) < copying
    for length in (1, 2, 4, 8, 16):
        for other in (False, True):
            assert none.chance(length, other) == missed.chance(length, other)


@pytest.mark.parametrize("is_unanimous", [False, True])
def test_chances_stay_between_0_and_1(is_unanimous: bool) -> None:
    trust = Trust()
    for step in range(200):
        trust.observe(1 + step % 40, is_unanimous, is_hit=step % 7 > 0)
        assert all(0 < trust.chance(n, is_unanimous, h) < 1 for n in (1, 5, 33) for h in (0, 9))
