"""How far a repeated context can be trusted, learnt from what contexts predicted in this output."""

from __future__ import annotations

from typing import Final

# Share of tokens that were the context's best follower, by context length: up to 1, 2, 4, 8, 16 and
# more; first for contexts with several followers, then for unanimous ones. Measured on SmolLM2's
# answers to the classes of `forerun bench speculation` except `long`, seeds 1 and 2.
_FREE: Final = (0.18, 0.16, 0.30, 0.55, 0.55, 0.55, 0.28, 0.52, 0.62, 0.75, 0.75, 0.75)
_COPYING: Final = (0.19, 0.32, 0.30, 0.55, 0.50, 0.50, 0.64, 0.85, 0.98, 0.92, 0.96, 0.98)
_UNANIMOUS: Final = 6
_LONGEST: Final = 5

_PRIOR_WEIGHT: Final = 8.0  # observations that the prior counts for
_DECAY: Final = 0.05  # weight that older observations lose with each new one
_RUN_DECAY: Final = 0.85  # weight that the recent share of hits keeps with each token
_FIRST_RUN: Final = 0.3


class Trust:
    """The chance that a context predicts the next token.

    An output whose latest tokens were predicted is taken to be copying, and while it copies, a
    unanimous context is far more reliable. The chance is therefore interpolated between two tables,
    free and copying, by the recent share of hits. Every token of the output is a trial of the
    context before it, guessed or not.
    """

    def __init__(self) -> None:
        self._free = [chance * _PRIOR_WEIGHT for chance in _FREE]
        self._copying = [chance * _PRIOR_WEIGHT for chance in _COPYING]
        self._num_free = [_PRIOR_WEIGHT] * len(_FREE)
        self._num_copying = [_PRIOR_WEIGHT] * len(_COPYING)
        self._run = _FIRST_RUN  # the share of recent tokens that were predicted

    def chance(self, length: int, is_unanimous: bool, num_right: int = 0) -> float:
        """Return the chance of a context's best follower, if `num_right` guesses before it are
        accepted."""
        idx = _kind(length, is_unanimous)
        not_run = (1 - self._run) * _RUN_DECAY**num_right
        free = self._free[idx] / self._num_free[idx]
        copying = self._copying[idx] / self._num_copying[idx]
        return copying + not_run * (free - copying)

    def observe(self, length: int, is_unanimous: bool, is_hit: bool) -> None:
        """Count one token of the output; a context of length 0 predicted nothing."""
        run = self._run
        if length:
            idx = _kind(length, is_unanimous)
            self._free[idx] += (1 - run) * (is_hit - _DECAY * self._free[idx])
            self._num_free[idx] += (1 - run) * (1 - _DECAY * self._num_free[idx])
            self._copying[idx] += run * (is_hit - _DECAY * self._copying[idx])
            self._num_copying[idx] += run * (1 - _DECAY * self._num_copying[idx])
        self._run = run * _RUN_DECAY + is_hit * (1 - _RUN_DECAY)


def _kind(length: int, is_unanimous: bool) -> int:
    """Return a context's index into the tables."""
    assert length > 0
    kind = min(_LONGEST, (length - 1).bit_length())
    return kind + _UNANIMOUS if is_unanimous else kind
