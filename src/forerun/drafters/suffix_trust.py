"""How far a repeated context can be trusted, learned from what it predicted in this output."""

from __future__ import annotations

from typing import Final

# How often the best follower came next, for context lengths up to 1, 2, 4, 8, 16 and more, first
# where several tokens followed the context, then where the same one did every time. Measured on
# SmolLM2's answers to the classes of `forerun bench speculation` but `long`, seeds 1 and 2.
_FREE: Final = (0.18, 0.16, 0.30, 0.55, 0.55, 0.55, 0.28, 0.52, 0.62, 0.75, 0.75, 0.75)
_COPYING: Final = (0.19, 0.32, 0.30, 0.55, 0.50, 0.50, 0.64, 0.85, 0.98, 0.92, 0.96, 0.98)
_UNANIMOUS: Final = 6
_LONGEST: Final = 5

_PRIOR_WEIGHT: Final = 8.0  # observations that the prior counts for
_DECAY: Final = 0.05  # of older observations with each new one
_RUN_DECAY: Final = 0.85  # of the recent share of hits with each token
_FIRST_RUN: Final = 0.3


class Trust:
    """The chance that a context predicts the next token.

    An output that has been predicted of late is taken to be copying, and a context that was always
    followed by one token says much more while it is: the chance lies between two tables, as far
    towards copying as the recent share of hits. Every token of the output is a trial of the
    context before it, guessed or not.
    """

    def __init__(self) -> None:
        self._free = [chance * _PRIOR_WEIGHT for chance in _FREE]
        self._copying = [chance * _PRIOR_WEIGHT for chance in _COPYING]
        self._num_free = [_PRIOR_WEIGHT] * len(_FREE)
        self._num_copying = [_PRIOR_WEIGHT] * len(_COPYING)
        self._run = _FIRST_RUN  # the share of recent tokens that were predicted

    def chance(self, length: int, is_unanimous: bool, num_right: int = 0) -> float:
        """After `num_right` guesses that are taken to be right."""
        idx = _kind(length, is_unanimous)
        not_run = (1 - self._run) * _RUN_DECAY**num_right
        free = self._free[idx] / self._num_free[idx]
        copying = self._copying[idx] / self._num_copying[idx]
        return copying + not_run * (free - copying)

    def observe(self, length: int, is_unanimous: bool, is_hit: bool) -> None:
        """A context of length 0 predicted nothing."""
        run = self._run
        if length:
            idx = _kind(length, is_unanimous)
            self._free[idx] += (1 - run) * (is_hit - _DECAY * self._free[idx])
            self._num_free[idx] += (1 - run) * (1 - _DECAY * self._num_free[idx])
            self._copying[idx] += run * (is_hit - _DECAY * self._copying[idx])
            self._num_copying[idx] += run * (1 - _DECAY * self._num_copying[idx])
        self._run = run * _RUN_DECAY + is_hit * (1 - _RUN_DECAY)


def _kind(length: int, is_unanimous: bool) -> int:
    """Contexts that are judged together have one number, into the tables."""
    assert length > 0
    kind = min(_LONGEST, (length - 1).bit_length())
    return kind + _UNANIMOUS if is_unanimous else kind
