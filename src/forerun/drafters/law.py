"""A drafter's opinion about the next token, and guesses made from it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from forerun.drafters.base import RequestView
from forerun.sampling import Logits, Probs, Stream, draw_siblings, gumbel_top, softmax
from forerun.types import Acceptance, IntArray

Guess = tuple[int, Probs | None]  # a token, and the q [V] it was drawn from


@dataclass(frozen=True)
class DraftLaw:
    """Candidates by ascending id with their logits; all other tokens are excluded."""

    tokens: IntArray
    logits: Logits
    vocab_size: int

    @classmethod
    def dense(cls, logits: Logits) -> DraftLaw:
        tokens: IntArray = np.flatnonzero(logits > -np.inf)
        return cls(tokens, logits[tokens], len(logits))

    def guesses(
        self, request: RequestView, depth: int, num: int, draw_idx: Iterator[int]
    ) -> list[Guess]:
        """Up to `num` siblings for the token that stands `depth` places after the committed ones.

        They are made the way the request judges them, to be accepted as often as can be: at
        temperature 0 the best, coupled by the target's own noise, else drawn without
        replacement, each with its conditional q.
        """
        if request.params.temperature == 0:
            best = np.argsort(-self.logits, kind="stable")[:num]
            return [(int(self.tokens[idx]), None) for idx in best]
        if request.params.acceptance is Acceptance.COUPLED:
            position = len(request.tokens) + depth
            row = gumbel_top(self.logits, request.noise, position, num, self.tokens)
            return [(token, None) for token in row]
        return self._drawn(request, num, draw_idx)

    def _drawn(self, request: RequestView, num: int, draw_idx: Iterator[int]) -> list[Guess]:
        uniforms = [
            request.noise.uniform(Stream.DRAFT, request.round_idx, next(draw_idx))
            for _ in range(num)
        ]
        drawn = draw_siblings(softmax(self.logits), uniforms, replace=False)
        return [(int(self.tokens[idx]), self._spread(probs)) for idx, probs in drawn]

    def _spread(self, probs: Probs) -> Probs:
        row = np.zeros(self.vocab_size)
        row[self.tokens] = probs
        return row
