"""How far a repeated context can be trusted, learned from what it foretold in this output."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import Final, NamedTuple

# Context lengths up to 1, 2, 4, 8, 16, and more.
_LENGTHS: Final = (1, 2, 4, 8, 16)


class _Class(NamedTuple):
    """Contexts that are judged together."""

    is_copying: bool  # the output repeats the text just now
    is_unanimous: bool  # the same token followed every time


# By class and length: how often the best follower came next, measured on code edits, repeated
# passages, quotes and free text. A short context says much more while the output is copying.
_PRIOR: Final[Mapping[_Class, tuple[float, ...]]] = {
    _Class(False, False): (0.12, 0.15, 0.25, 0.25, 0.25, 0.25),
    _Class(False, True): (0.27, 0.47, 0.57, 0.68, 0.78, 0.85),
    _Class(True, False): (0.10, 0.12, 0.20, 0.30, 0.30, 0.30),
    _Class(True, True): (0.85, 0.95, 0.95, 0.90, 0.94, 0.98),
}
_PRIOR_WEIGHT: Final = 8.0  # observations that the prior counts for
_DECAY: Final = 0.95  # of a class's older observations with each new one
_RUN_DECAY: Final = 0.85  # of the recent share of hits with each token
_FIRST_RUN: Final = 0.3
_COPYING_FROM: Final = 0.5  # share of recent tokens that were foretold


class Trust:
    """The chance that a context foretells the next token.

    Every token of the output is a trial of the context before it, guessed or not, so the chances
    are a function of the committed text alone.
    """

    def __init__(self) -> None:
        self._hits = {key: [c * _PRIOR_WEIGHT for c in row] for key, row in _PRIOR.items()}
        self._trials = {key: [_PRIOR_WEIGHT] * len(row) for key, row in _PRIOR.items()}
        self._run = _FIRST_RUN  # the share of recent tokens that were foretold

    def chance(self, length: int, is_unanimous: bool, num_held: int = 0) -> float:
        """After `num_held` guesses that are taken to have held."""
        run = 1 - (1 - self._run) * _RUN_DECAY**num_held
        key, idx = _Class(run >= _COPYING_FROM, is_unanimous), bisect_left(_LENGTHS, length)
        return self._hits[key][idx] / self._trials[key][idx]

    def observe(self, length: int, is_unanimous: bool, is_hit: bool) -> None:
        """A context of length 0 foretold nothing."""
        if length:
            key = _Class(self._run >= _COPYING_FROM, is_unanimous)
            idx = bisect_left(_LENGTHS, length)
            self._hits[key][idx] = self._hits[key][idx] * _DECAY + is_hit
            self._trials[key][idx] = self._trials[key][idx] * _DECAY + 1
        self._run = self._run * _RUN_DECAY + is_hit * (1 - _RUN_DECAY)
