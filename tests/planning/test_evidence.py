"""A drafter's own word, and what it turned out to be worth."""

from __future__ import annotations

import random

import pytest

from forerun.planning.acceptance_estimate import AcceptanceEstimate
from forerun.planning.evidence import Evidence


def test_at_first_both_sides_count_alike() -> None:
    evidence = Evidence()
    assert evidence.chance(0.7, 0.7) == pytest.approx(0.7)
    assert evidence.chance(0.2, 0.9) == pytest.approx(evidence.chance(0.9, 0.2))


def test_certainty_is_no_error() -> None:
    assert 0 < Evidence().chance(0.0, 0.0) < Evidence().chance(1.0, 1.0) < 1


@pytest.mark.parametrize("is_word_right", [True, False])
def test_the_side_that_knows_is_believed(is_word_right: bool) -> None:
    """One forecast is the truth, the other is drawn at random."""
    rng, evidence = random.Random(2), Evidence()
    for _ in range(3000):
        truth, rumour = rng.choice((0.1, 0.9)), rng.choice((0.1, 0.9))
        rate, word = (rumour, truth) if is_word_right else (truth, rumour)
        evidence.learn(rate, word, rng.random() < truth)
    told = (0.5, 0.9) if is_word_right else (0.9, 0.5)
    assert evidence.chance(*told) == pytest.approx(0.9, abs=0.06)


def test_a_word_that_promises_too_much_is_discounted() -> None:
    rng, evidence = random.Random(3), Evidence()
    for _ in range(3000):
        evidence.learn(0.5, 0.9, rng.random() < 0.4)
    assert evidence.chance(0.5, 0.9) == pytest.approx(0.4, abs=0.08)


def test_guesses_of_one_drafter_differ_by_its_word() -> None:
    estimate, rng = AcceptanceEstimate(), random.Random(4)
    for _ in range(600):
        word = rng.choice((0.3, 0.95))
        estimate.observe(1, int(rng.random() < word), words=[word])
    weak, strong = (estimate.gains(3, words=[word] * 3) for word in (0.3, 0.95))
    assert weak[0] == pytest.approx(0.3, abs=0.15)
    assert strong[0] > 0.8
    assert strong == sorted(strong, reverse=True)
