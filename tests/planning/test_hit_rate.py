"""Following a rate that may jump."""

from __future__ import annotations

import random
from statistics import mean

import pytest

from forerun.planning.hit_rate import FixedRate, HitRate, SteadyRate


def _after(outcomes: list[bool], prior: float = 0.5) -> HitRate:
    rate = HitRate(FixedRate(prior))
    for outcome in outcomes:
        rate.observe(outcome)
    return rate


def test_nothing_observed_is_the_prior() -> None:
    assert HitRate(FixedRate(0.3)).rate == 0.3


def test_a_steady_rate_is_known_closely() -> None:
    rng, rate, errors = random.Random(1), HitRate(FixedRate(0.5)), []
    for trial in range(2000):
        rate.observe(rng.random() < 0.8)
        if trial > 200:
            errors.append(abs(rate.rate - 0.8))
    assert mean(errors) < 0.06


def test_a_drop_is_believed_within_six_trials() -> None:
    assert _after([True] * 200 + [False] * 6).rate < 0.5


def test_a_single_miss_is_not_a_drop() -> None:
    assert _after([True] * 200 + [False]).rate > 0.8


def test_a_bad_stretch_fades_to_what_was_known_before_it() -> None:
    rate = _after([True] * 200 + [False] * 6)
    low = rate.rate
    for _ in range(20):
        rate.age()
    assert rate.rate > low + 0.2


def test_old_evidence_fades_to_the_prior() -> None:
    rate = _after([False] * 50, prior=0.7)
    for _ in range(2000):
        rate.age()
    assert abs(rate.rate - 0.7) < 0.01


def test_a_steady_rate_has_one_long_memory() -> None:
    rate = SteadyRate(FixedRate(0.9), strength=2.0, memory=100)
    assert rate.rate == 0.9
    for trial in range(1000):
        rate.observe(trial % 4 == 0)
    assert rate.rate == pytest.approx(0.25, abs=0.02)
    for _ in range(6):
        rate.observe(True)
    assert rate.rate < 0.35


def test_a_prior_that_moves_is_noticed() -> None:
    prior = FixedRate(0.9)
    rate = HitRate(prior)
    assert rate.rate == pytest.approx(0.9)
    prior.rate = 0.1
    assert rate.rate == pytest.approx(0.1)
