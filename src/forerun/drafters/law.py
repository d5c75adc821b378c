"""A drafter's distribution over the next token, and guesses made from it."""

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
    """Candidate tokens in ascending order with their logits; all other tokens are excluded."""

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
        """Return the law that the request's options make of a model's logits `row` after `path`.

        `row` is for the ids 0, 1, … or for `tokens`, which ascend. None if the options allow none
        of them, or if the grammar has ended."""
        ids = np.arange(min(len(row), vocab_size)) if tokens is None else tokens
        params = request.params
        if params.temperature == 0:  # a one-hot law would leave no second-best to branch to
            params = params.before_argmax
        context = context_of(request).extended(path)
        if request.grammar is not None and request.grammar.is_over(context.output):
            return None
        if context.changes_logits(params):  # these options index by the target's ids
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
        """Return up to `num` siblings for the token at position len(request.tokens) + `depth`.

        They are made in the way they are verified, to be accepted as often as possible: the best
        at temperature 0, a choice by the target's own noise when coupled, else draws without
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
