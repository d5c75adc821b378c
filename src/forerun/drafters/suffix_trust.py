"""How far a repeated context can be trusted, learned from what it foretold in this output."""

from __future__ import annotations

from typing import Final

# How often the best follower came next, measured on code edits, repeated passages, quotes and
# free text, for context lengths up to 1, 2, 4, 8, 16 and more. A short context says much more
# while the output is copying.
_PRIOR: Final = (
    *(0.12, 0.15, 0.25, 0.25, 0.25, 0.25),
    *(0.27, 0.47, 0.57, 0.68, 0.78, 0.85),  # unanimous: the same token followed every time
    *(0.10, 0.12, 0.20, 0.30, 0.30, 0.30),  # copying: the output repeats the text just now
    *(0.85, 0.95, 0.95, 0.90, 0.94, 0.98),  # both
)
_UNANIMOUS: Final = 6
_COPYING: Final = 12
_LONGEST: Final = 5
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
        self._hits = [chance * _PRIOR_WEIGHT for chance in _PRIOR]
        self._trials = [_PRIOR_WEIGHT] * len(_PRIOR)
        self._run = _FIRST_RUN  # the share of recent tokens that were foretold

    def chance(self, length: int, is_unanimous: bool, num_held: int = 0) -> float:
        """After `num_held` guesses that are taken to have held."""
        idx = _kind(length, is_unanimous, 1 - (1 - self._run) * _RUN_DECAY**num_held)
        return self._hits[idx] / self._trials[idx]

    def observe(self, length: int, is_unanimous: bool, is_hit: bool) -> None:
        """A context of length 0 foretold nothing."""
        if length:
            idx = _kind(length, is_unanimous, self._run)
            self._hits[idx] = self._hits[idx] * _DECAY + is_hit
            self._trials[idx] = self._trials[idx] * _DECAY + 1
        self._run = self._run * _RUN_DECAY + is_hit * (1 - _RUN_DECAY)


def _kind(length: int, is_unanimous: bool, run: float) -> int:
    """Contexts that are judged together have one number, into `_PRIOR`."""
    kind = min(_LONGEST, (length - 1).bit_length())
    if is_unanimous:
        kind += _UNANIMOUS
    return kind + _COPYING if run >= _COPYING_FROM else kind
