"""How often it is worth asking whether to guess."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_COST: Final = 0.04  # tokens that the time of one look would bring
_PATIENCE: Final = 4  # looks that may bring nothing before a round is skipped, then one more
_MAX_PAUSE: Final = 3  # rounds


@dataclass
class _Watch:
    credit: float = _PATIENCE  # looks that what was found has paid for
    num_skipped: int = 0

    @property
    def pause(self) -> int:
        """Rounds to skip before the next look."""
        return 0 if self.credit > 0 else min(_MAX_PAUSE, 1 + int(-self.credit) // _PATIENCE)


class Lookout:
    """Every round at first, and every fourth where nothing has paid for long.

    Asking takes time, little for one round and too much for all rounds of a text that hardly
    repeats itself. What comes in between is found at most three rounds late.
    """

    def __init__(self) -> None:
        self._watches: dict[int, _Watch] = {}

    def is_due(self, request: int) -> bool:
        """Whether to look this round; a round that is not due counts as skipped."""
        watch = self._watches.setdefault(request, _Watch())
        if watch.num_skipped < watch.pause:
            watch.num_skipped += 1
            return False
        watch.num_skipped = 0
        return True

    def looked(self, request: int, gain: float) -> None:
        """A look found guesses that are expected to bring `gain` tokens more than they cost."""
        watch, worth = self._watches[request], gain / _COST
        if worth > 1:
            watch.credit = min(_PATIENCE, max(0.0, watch.credit) + worth)
        else:
            watch.credit -= 1

    def end(self, request: int) -> None:
        self._watches.pop(request, None)
