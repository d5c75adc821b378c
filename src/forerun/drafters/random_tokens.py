"""Tokens at random: the paper's lower bound, and every verifier's worst case."""

from __future__ import annotations

import numpy as np

from forerun.drafters.base import Budget, OneByOne, RequestView
from forerun.drafters.growing import grow
from forerun.drafters.law import DraftLaw
from forerun.sampling import Stream
from forerun.types import Proposal


class RandomTokens(OneByOne[None]):
    """Uniform over the vocabulary; at temperature 0 it picks at random, too."""

    picks = False

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self._vocab_size = vocab_size
        self._tokens = np.arange(vocab_size)
        self._uniform = np.zeros(vocab_size)

    def _remember(self, request: RequestView) -> None:
        """Nothing."""

    def _guess(self, request: RequestView, memory: None, budget: Budget) -> Proposal:  # noqa: ARG002
        def law_after(path: tuple[int, ...]) -> DraftLaw:
            if request.params.temperature > 0:
                return DraftLaw(self._tokens, self._uniform, self._vocab_size)
            # No draw is judged by its q at temperature 0, so a shared uniform biases nothing.
            u = request.noise.uniform(Stream.DRAFT, request.round_idx, len(path))
            return self._some(u, budget.num_branches)

        return grow(request, budget, law_after)

    def _some(self, u: float, num: int) -> DraftLaw:
        """The `num` tokens from a random one on, equally good."""
        num = min(num, self._vocab_size)
        first = min(int(u * self._vocab_size), self._vocab_size - num)
        return DraftLaw(self._tokens[first : first + num], self._uniform[:num], self._vocab_size)
