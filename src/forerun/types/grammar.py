"""What an answer may be, token by token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

BoolArray = npt.NDArray[np.bool_]


class Grammar(Protocol):
    """A function of the output so far: which tokens may follow it.

    It may remember where it was asked last, so one request has one of its own. An output is what
    it allowed, token after token; of another one it says nothing.
    """

    def allowed(self, output: Sequence[int]) -> BoolArray:
        """[V]: the tokens that may follow; those that end a text where it may end here."""

    def choice(self, output: Sequence[int]) -> int | None:
        """A number for what may follow, the same wherever just this may; None where it is much."""

    def is_over(self, output: Sequence[int]) -> bool:
        """Whether nothing but the end may follow."""

    def forced(self, output: Sequence[int]) -> Sequence[int]:
        """Tokens that must follow, one after the other; often none."""

    def num_fitting(self, output: Sequence[int], tokens: Sequence[int]) -> int:
        """How many of `tokens` may follow, one after the other."""
