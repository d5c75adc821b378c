"""How far guesses will hold."""

from __future__ import annotations

import pytest

from forerun.planning.acceptance_estimate import AcceptanceEstimate
from forerun.planning.shared_acceptance import SharedAcceptance


def test_gains_never_rise_and_stay_chances() -> None:
    estimate = AcceptanceEstimate()
    for num_matched in (3, 0, 8, 1):
        estimate.observe(8, num_matched)
    gains = estimate.gains(8)
    assert len(gains) == 8
    assert gains == sorted(gains, reverse=True)
    assert all(0 < gain < 1 for gain in gains)


def test_copying_is_a_rare_start_and_a_long_run() -> None:
    estimate = AcceptanceEstimate()
    for _ in range(40):
        for num_matched in (8, 0, 0, 0):
            estimate.observe(8, num_matched)
    gains = estimate.gains(8)
    assert gains[0] == pytest.approx(0.33, abs=0.15)
    assert gains[7] / gains[0] > 0.8


def test_after_a_full_accept_the_next_guess_is_another_matter() -> None:
    estimate = AcceptanceEstimate()
    for _ in range(40):
        for num_matched in (0, 0, 0, 4, 4, 4):
            estimate.observe(4, num_matched)
    estimate.observe(4, 4)
    after_full = estimate.rate
    estimate.observe(4, 0)
    assert after_full > estimate.rate + 0.25


def test_what_nobody_looked_at_becomes_average() -> None:
    estimate = AcceptanceEstimate()
    for _ in range(40):
        for num_matched in (0, 0, 0, 4, 4, 4):
            estimate.observe(4, num_matched)
    estimate.observe(4, 0)
    after_miss = estimate.rate
    for _ in range(3):
        estimate.begin_round()
    assert estimate.rate > after_miss + 0.05


def test_deeper_guesses_that_were_never_tried_are_taken_for_first_ones() -> None:
    estimate = AcceptanceEstimate()
    for _ in range(200):
        estimate.observe(1, 1)
    assert estimate.gains(4)[3] > 0.9


def test_only_the_first_miss_counts() -> None:
    one, other = AcceptanceEstimate(), AcceptanceEstimate()
    one.observe(2, 1)
    other.observe(8, 1)
    assert one.gains(8) == other.gains(8)


def test_known_guesses_are_not_counted_twice() -> None:
    at_once, in_parts = AcceptanceEstimate(), AcceptanceEstimate()
    at_once.observe(5, 4)
    in_parts.observe(2, 2)
    in_parts.observe(5, 4, num_known=2)
    assert at_once.gains(8) == in_parts.gains(8)


def test_a_new_request_starts_from_what_others_taught() -> None:
    shared = SharedAcceptance()
    other = AcceptanceEstimate(shared)
    for _ in range(100):
        other.observe(8, 0)
    assert AcceptanceEstimate(shared).rate < 0.05


def test_a_request_may_differ_from_the_others() -> None:
    shared = SharedAcceptance()
    other = AcceptanceEstimate(shared)
    for _ in range(100):
        other.observe(8, 0)
    own = AcceptanceEstimate(shared)
    for _ in range(20):
        own.observe(8, 8)
    assert own.rate > 0.7


def test_siblings_add_what_their_ranks_caught() -> None:
    estimate = AcceptanceEstimate()
    for _ in range(100):
        estimate.observe(1, 1, branch=0)
        estimate.observe(1, 1, branch=1)
    one, two, three = (estimate.gains(1, num)[0] for num in (1, 2, 3))
    assert one == pytest.approx(0.5, abs=0.1)
    assert two > 0.9
    assert two < three < 1
