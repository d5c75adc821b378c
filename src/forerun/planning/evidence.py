"""What a drafter says of its own guesses, weighed against how its guesses have fared."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
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
        return next(self.chances(rate, (word,)))

    def chances(self, rate: float, words: Iterable[float]) -> Iterator[float]:
        """Of guesses that have one rate and a word each."""
        known = self._bias + self._of_rate * _logit(rate)
        for word in words:
            yield 1 / (1 + math.exp(-known - self._of_word * _logit(word)))

    def learn(self, rate: float, word: float, hit: bool) -> None:
        """A guess with these forecasts held, or missed."""
        told_rate, told_word = _logit(rate), _logit(word)
        told = self._bias + self._of_rate * told_rate + self._of_word * told_word
        error = _STEP * (hit - 1 / (1 + math.exp(-told)))
        self._bias += error
        self._of_rate += error * told_rate
        self._of_word += error * told_word


def _logit(chance: float) -> float:
    chance = min(_MOST, max(1 - _MOST, chance))
    return math.log(chance / (1 - chance))
