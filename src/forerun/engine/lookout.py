"""How often it is worth asking whether to guess."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# Tokens whose time may be looked away before a round is skipped, and as many again for each more.
_PATIENCE: Final = 0.03
_SHARE: Final = 0.002  # of a token's time comes back with every round
_MAX_PAUSE: Final = 7  # rounds


@dataclass
class _Watch:
    credit: float = _PATIENCE  # tokens that may be spent on looking
    num_to_skip: int = 0  # rounds before the next look

    def spend(self, cost: float) -> None:
        self.credit = min(_PATIENCE, self.credit) - cost
        if self.credit <= 0:
            self.num_to_skip = min(_MAX_PAUSE, 1 + int(-self.credit / _PATIENCE))


class Lookout:
    """Every round where that is next to nothing, else ever more rarely until something pays.

    Asking takes time, which a large model does not feel and a small one does: in a text that
    hardly repeats itself, guesses would not pay for it. What comes in between is found at most
    seven rounds late.
    """

    def __init__(self) -> None:
        self._watches: dict[int, _Watch] = {}

    def is_due(self, request: int) -> bool:
        """Whether to look this round; a round that is not due counts as skipped."""
        watch = self._watches.get(request)
        if watch is None:
            return True
        watch.credit += _SHARE
        if watch.num_to_skip == 0:
            return True
        watch.num_to_skip -= 1
        return False

    def looked(self, request: int, gain: float, cost: float) -> None:
        """A look found guesses that are expected to bring `gain` tokens more than they take; in
        the time of the look itself, plain decoding would have brought `cost` tokens."""
        watch = self._watches.setdefault(request, _Watch())
        if gain > cost:
            watch.credit = max(0.0, watch.credit) + gain
        else:
            watch.spend(cost)

    @property
    def requests(self) -> set[int]:
        """Whom it remembers."""
        return set(self._watches)

    def end(self, request: int) -> None:
        self._watches.pop(request, None)
