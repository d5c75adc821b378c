"""Whether a trained drafter is right about as often as its card says."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from forerun.drafters.heads import Card

_FAR_BELOW: Final = 0.4  # of what the card says
_CHANCE: Final = 1e-4  # of such a run of misses, if it were right that often


class CardCheck:
    """Counts first guesses, by drafter, until one is found out."""

    def __init__(self, cards: Mapping[str, Card]) -> None:
        self._promised = {name: card.chances[0] for name, card in cards.items()}
        self._counts = dict.fromkeys(cards, (0, 0))  # hits, guesses

    def observe(self, drafter: str, *, is_hit: bool) -> str | None:
        """Why it is not what its card says, the moment that it is beyond doubt."""
        if drafter not in self._counts:
            return None
        hits, num = self._counts[drafter]
        hits, num = hits + is_hit, num + 1
        self._counts[drafter] = hits, num
        if num * _divergence(hits / num, _FAR_BELOW * self._promised[drafter]) < -math.log(_CHANCE):
            return None
        del self._counts[drafter]
        return (
            f"of its first {num} guesses {hits} were accepted, and its card says "
            f"{self._promised[drafter]:.0%}: it may have been trained for other weights of this "
            "model, for other layers, or on texts unlike these"
        )


def _divergence(rate: float, least: float) -> float:
    """How strongly a rate below `least` speaks against it, for each trial (Chernoff's bound)."""
    if rate >= least:
        return 0.0
    missing = (1 - rate) * math.log((1 - rate) / (1 - least))
    return missing + (rate * math.log(rate / least) if rate else 0.0)
