"""What an answer may be, token by token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Grammar(Protocol):
    """A function of the output so far: which tokens may follow it.

    It may remember where it was asked last, so one request has one of its own. An output is what
    it allowed, token after token; of another one it says nothing. Lists may grow between two
    questions, and do not change otherwise.
    """

    def binds(self, output: Sequence[int], more: Sequence[int] = ()) -> bool:
        """Whether it says anything behind both: as long as it does not, everything may follow.
        Where it does once, it does so in all that follows, unless it `may_loosen`."""

    def may_loosen(self, output: Sequence[int]) -> bool:
        """Whether it may bind, and then not, before it binds for good."""

    def allowed_bits(self, output: Sequence[int], more: Sequence[int] = ()) -> bytes:
        """Asked where it binds, behind both. A bit for each token, the lowest first: those that may
        follow, and those that end a text where it may end here. Tokens that it does not know are 0,
        or not there."""

    def is_over(self, output: Sequence[int], more: Sequence[int] = ()) -> bool:
        """Whether nothing but the end may follow both."""

    def num_fitting(self, output: Sequence[int], tokens: Sequence[int]) -> int:
        """How many of `tokens` may follow, one after the other."""
