"""Pairs of adjacent tokens: a repeated stretch of text repeats at least one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_SEVERAL: Final = -1


class TokenPairs:
    """The pairs of a growing text: far cheaper than a suffix automaton, and enough to see that most
    ends of a text are new."""

    def __init__(self) -> None:
        self.is_repeated = False  # whether the last pair occurred before
        self._pairs: set[tuple[int, int]] = set()
        self._followers: dict[int, int] = {}  # token -> its only follower, or _SEVERAL
        self._last = _SEVERAL
        self._num_read = 0

    @property
    def num_followers(self) -> int:
        """Different tokens that followed the last token before: 0, 1, or 2 for any more."""
        follower = self._followers.get(self._last)
        return 0 if follower is None else 1 + (follower == _SEVERAL)

    def extend(self, tokens: Sequence[int]) -> None:
        """Read the new tokens of the text."""
        for idx in range(self._num_read, len(tokens)):
            last, token = self._last, tokens[idx]
            pair = last, token
            self.is_repeated = pair in self._pairs
            self._pairs.add(pair)
            if self._followers.setdefault(last, token) != token:
                self._followers[last] = _SEVERAL
            self._last = token
        self._num_read = len(tokens)
