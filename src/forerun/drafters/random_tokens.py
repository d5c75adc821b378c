"""Random tokens: the paper's lower bound, and every verifier's worst case."""

from __future__ import annotations

import numpy as np

from forerun.drafters.base import Budget, OneByOne, RequestView
from forerun.drafters.growing import grow
from forerun.drafters.law import DraftLaw
from forerun.sampling import Stream
from forerun.types import Proposal


class RandomTokens(OneByOne[None]):
    """Guesses uniformly over the vocabulary, also at temperature 0."""

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
            # At temperature 0 no guess is verified by its q, so siblings may share a uniform.
            u = request.noise.uniform(Stream.DRAFT, request.round_idx, len(path))
            return self._some(u, budget.num_branches)

        return grow(request, budget, law_after)

    def _some(self, u: float, num: int) -> DraftLaw:
        """Return the law of `num` consecutive ids from a random one on, all equally likely."""
        num = min(num, self._vocab_size)
        first = min(int(u * self._vocab_size), self._vocab_size - num)
        return DraftLaw(self._tokens[first : first + num], self._uniform[:num], self._vocab_size)
