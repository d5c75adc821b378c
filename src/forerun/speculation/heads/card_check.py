"""Checking whether a trained head's guesses are accepted about as often as its card says."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from forerun.drafters.heads import Card

_FAR_BELOW: Final = 0.4  # of the chance on the card: less is far too little
# For a head without a card. Every kind of ours has 0.27 or more after 40 seconds of training
# (bench/records/heads-h200.json); on wrong layers, vllm#50170 saw 0.04 and vllm#43671 0.1.
_LEAST: Final = 0.15
_NOTHING: Final = f"any head for this target should reach {_LEAST:.0%}"
_CHANCE: Final = 1e-4  # of so few accepted guesses, if the head were good enough


class CardCheck:
    """Counts the first guesses of heads, until one is found to be much worse than its card."""

    def __init__(self, cards: Mapping[str, Card]) -> None:
        firsts = {name: next(iter(card.chances), None) for name, card in cards.items()}
        self._said = {
            name: _NOTHING if first is None else f"its card says {first:.0%}"
            for name, first in firsts.items()
        }
        self._least = {
            name: _LEAST if first is None else _FAR_BELOW * first for name, first in firsts.items()
        }
        self._counts = dict.fromkeys(cards, (0, 0))  # accepted, guesses

    def observe(self, drafter: str, *, is_accepted: bool) -> str | None:
        """Count a first guess; once it is certain that a head falls far short, return why."""
        if drafter not in self._counts:
            return None
        accepted, num = self._counts[drafter]
        accepted, num = accepted + is_accepted, num + 1
        self._counts[drafter] = accepted, num
        if num * _divergence(accepted / num, self._least[drafter]) < -math.log(_CHANCE):
            return None
        del self._counts[drafter]
        return (
            f"of its first {num} guesses {accepted} were accepted, and {self._said[drafter]}: it "
            "may have been trained for other weights of this model, for other layers (are its "
            "layer ids one off?), or on texts unlike these"
        )


def _divergence(rate: float, least: float) -> float:
    """Return the evidence of each trial against a true rate of `least` or more, in nats, if `rate`
    was observed (Chernoff's bound)."""
    if rate >= least:
        return 0.0
    missing = (1 - rate) * math.log((1 - rate) / (1 - least))
    return missing + (rate * math.log(rate / least) if rate else 0.0)
