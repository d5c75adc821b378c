"""The text that a grammar was last asked about, compared with the next one."""

from __future__ import annotations

from collections.abc import Sequence


class Path:
    """Finds where a text begins to differ from the last one.

    A list that was given before may have grown since, but must not have changed otherwise: only
    its new tokens are compared. Other sequences are compared as a whole."""

    def __init__(self) -> None:
        self.tokens: list[int] = []  # begin with the text; more may be left of an earlier one
        self._growing: Sequence[int] = self.tokens  # the last list; it and `tokens` are alike in:
        self._num_alike = 0

    def follow(self, output: Sequence[int], more: Sequence[int] = ()) -> int:
        """Make `output` followed by `more` the text; returns how many tokens at its beginning are
        what they were."""
        is_growing = output is self._growing and len(output) >= self._num_alike
        num_same = self._num_alike if is_growing else _num_alike(self.tokens, output)
        num, tokens = len(output), self.tokens
        while num_same < min(num + len(more), len(tokens)):
            if tokens[num_same] != (output[num_same] if num_same < num else more[num_same - num]):
                break
            num_same += 1
        if num_same < num:
            tokens[num_same:] = (*output[num_same:], *more)
        elif num_same < num + len(more):
            tokens[num_same:] = more[num_same - num :]
        if isinstance(output, list):
            self._growing, self._num_alike = output, num
        else:
            self._num_alike = min(self._num_alike, num_same)
        return num_same


def _num_alike(known: Sequence[int], output: Sequence[int]) -> int:
    """Return how many tokens both have in common at their beginning."""
    low, high = 0, min(len(known), len(output))
    if list(known[:high]) == list(output[:high]):
        return high
    while high - low > 1:  # the first difference is between them
        middle = (low + high) // 2
        if list(known[low:middle]) == list(output[low:middle]):
            low = middle
        else:
            high = middle
    return low
