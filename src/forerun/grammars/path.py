"""The text that a grammar was asked about last."""

from __future__ import annotations

from collections.abc import Sequence


class Path:
    """Of the next text only what may be new is looked at, however long it is. A list that it was
    asked about may have grown since, and is as it was otherwise; others are compared."""

    def __init__(self) -> None:
        self.tokens: list[int] = []  # which begin with the text; more may be left of another one
        self._growing: Sequence[int] = self.tokens  # a list that begins with so many of them:
        self._num_alike = 0

    def follow(self, output: Sequence[int], more: Sequence[int] = ()) -> int:
        """How many tokens at the beginning are what they were; from now on it begins with `output`
        and `more` behind it."""
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
    """At the beginning of both."""
    low, high = 0, min(len(known), len(output))
    if list(known[:high]) == list(output[:high]):
        return high
    while high - low > 1:  # what differs first is between them
        middle = (low + high) // 2
        if list(known[low:middle]) == list(output[low:middle]):
            low = middle
        else:
            high = middle
    return low
