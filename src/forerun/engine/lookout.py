"""How often it is worth asking whether to guess."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_PATIENCE: Final = 8  # fruitless looks before a round is skipped, then before one more is
_MAX_PAUSE: Final = 3  # rounds


@dataclass
class _Watch:
    num_fruitless: int = 0
    num_skipped: int = 0


class Lookout:
    """Every round at first, and every fourth where nothing has paid for long.

    Asking takes time, little for one round and too much for all rounds of a text that never
    repeats. What comes in between is found at most three rounds late.
    """

    def __init__(self) -> None:
        self._watches: dict[int, _Watch] = {}

    def is_due(self, request: int) -> bool:
        """Whether to look this round; a round that is not due counts as skipped."""
        watch = self._watches.setdefault(request, _Watch())
        if watch.num_skipped < min(_MAX_PAUSE, watch.num_fruitless // _PATIENCE):
            watch.num_skipped += 1
            return False
        watch.num_skipped = 0
        return True

    def looked(self, request: int, found: bool) -> None:
        """A look that led to guesses, or to none."""
        watch = self._watches[request]
        watch.num_fruitless = 0 if found else watch.num_fruitless + 1

    def end(self, request: int) -> None:
        self._watches.pop(request, None)
