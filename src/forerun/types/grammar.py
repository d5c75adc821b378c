"""What an answer may consist of, token by token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Grammar(Protocol):
    """Which tokens may follow, as a function of the output so far.

    Each method asks about the text `output` + `more`. An implementation may remember the last
    output that it was asked about, so each request has a grammar of its own. Between two calls an
    output may grow, but does not change otherwise. It must consist of tokens that were allowed.
    """

    def binds(self, output: Sequence[int], more: Sequence[int] = ()) -> bool:
        """Whether the grammar restricts the next token; if not, every token may follow.

        Once it binds, it binds from there on, unless it `may_loosen`.
        """

    def may_loosen(self, output: Sequence[int]) -> bool:
        """Whether it may bind for a while before it binds for good."""

    def allowed_bits(self, output: Sequence[int], more: Sequence[int] = ()) -> bytes:
        """Return a bit for each token, the lowest id first, where the grammar binds.

        Set are the tokens that may follow, and those that end a text if it may end here. Tokens
        that the grammar does not know are 0, or beyond the end.
        """

    def is_over(self, output: Sequence[int], more: Sequence[int] = ()) -> bool:
        """Whether nothing but the end of the text may follow."""

    def num_fitting(self, output: Sequence[int], tokens: Sequence[int]) -> int:
        """How many of `tokens`, one after the other, may follow `output`."""
