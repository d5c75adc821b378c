"""What a drafter says of its own guesses, weighed against how its guesses have fared."""

from __future__ import annotations

import math
from typing import Final

_STEP: Final = 0.02
_MOST: Final = 0.999  # nothing is certain
_START: Final = 0.5  # the weight of either side, before anything was learnt


class Evidence:
    """Two forecasts of one guess made into one, by logistic regression that learns as it goes.

    The rate at which guesses have held knows the text; the drafter's word knows the guess: how
    long its context is, and how often that has led astray. Which to trust, and by how much either
    is too sure of itself, is learnt from every guess that is scored.
    """

    def __init__(self) -> None:
        self._bias = 0.0
        self._of_rate = self._of_word = _START

    def chance(self, rate: float, word: float) -> float:
        return _chance(self._bias + self._of_rate * _logit(rate) + self._of_word * _logit(word))

    def learn(self, rate: float, word: float, hit: bool) -> None:
        """A guess with these forecasts held, or missed."""
        error = _STEP * (hit - self.chance(rate, word))
        self._bias += error
        self._of_rate += error * _logit(rate)
        self._of_word += error * _logit(word)


def _logit(chance: float) -> float:
    chance = min(_MOST, max(1 - _MOST, chance))
    return math.log(chance / (1 - chance))


def _chance(logit: float) -> float:
    return 1 / (1 + math.exp(-logit))
