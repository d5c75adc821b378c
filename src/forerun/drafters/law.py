"""A drafter's opinion about the next token, and guesses made from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from forerun.drafters.base import RequestView, context_of
from forerun.errors import NothingAllowed
from forerun.sampling import (
    Logits,
    Probs,
    Stream,
    draw_siblings,
    gumbel_top,
    served_logits,
    softmax,
)
from forerun.types import Acceptance, FloatArray, IntArray

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

    @classmethod
    def served(
        cls,
        row: FloatArray,
        request: RequestView,
        path: Sequence[int],
        vocab_size: int,
        tokens: IntArray | None = None,
    ) -> DraftLaw | None:
        """From a model's logits after `path`, by the request's own options: of ids 0, 1, … or of
        `tokens`, which ascend. None where the options allow none of these."""
        ids = np.arange(min(len(row), vocab_size)) if tokens is None else tokens
        params = request.params
        if params.temperature == 0:  # one-hot would leave no second-best to branch to
            params = params.before_argmax
        context = context_of(request).extended(path)
        if request.grammar is not None and request.grammar.is_over(context.output):
            return None
        if context.changes_logits(params):  # by id
            padded = np.full(vocab_size, -np.inf)
            padded[ids] = row[: len(ids)]
            try:
                return cls.dense(served_logits(padded, params, context))
            except NothingAllowed:
                return None
        logits = served_logits(row[: len(ids)], params, context)
        found: IntArray = np.flatnonzero(logits > -np.inf)
        return cls(ids[found], logits[found], vocab_size)

    def guesses(
        self, request: RequestView, depth: int, num: int, draw_idx: Iterator[int]
    ) -> list[Guess]:
        """Up to `num` siblings for the token that stands `depth` places after the committed ones.

        They are made the way the request judges them, to be accepted as often as can be: at
        temperature 0 the best, coupled by the target's own noise, else drawn without
        replacement, each with its conditional q.
        """
        if request.params.temperature == 0:
            if num == 1:
                return [(int(self.tokens[np.argmax(self.logits)]), None)]
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
