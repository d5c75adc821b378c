"""Proposals of heads that give the logits of all places at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from forerun.drafters.base import Budget, RequestView
from forerun.drafters.growing import Path, grow
from forerun.drafters.heads.confidence import Confidence, Guess
from forerun.drafters.law import DraftLaw
from forerun.sampling import softmax
from forerun.types import Acceptance, IntArray, Proposal, Verdict

F32 = npt.NDArray[np.float32]


class Places:
    """Makes proposals from laws that depend on the length of the path alone.

    Picked chains leave out guesses that are too unlikely, by chances learnt from earlier chains."""

    def __init__(self, tokens: IntArray, vocab_size: int) -> None:
        """`tokens` are the target's ids of the draft vocabulary."""
        self._tokens, self._vocab_size = tokens, vocab_size
        self._confidence = Confidence()
        self._guesses: dict[int, list[Guess]] = {}  # the latest chain, until `judge`

    def grown(self, request: RequestView, budget: Budget, logits: F32) -> Proposal:
        """Return the proposal from `logits` [places, draft V]."""

        def law_after(path: Path) -> DraftLaw | None:
            if len(path) == len(logits):
                return None
            row = logits[len(path)]
            return DraftLaw.served(row, request, path, self._vocab_size, self._tokens)

        whole, params = grow(request, budget, law_after), request.params
        is_drawn = params.temperature > 0
        if budget.num_branches > 1 or (is_drawn and params.acceptance is Acceptance.REJECTION):
            return whole
        pairs = zip(whole.tokens, logits, strict=False)
        guesses = self._guesses[request.id] = [(t, self._share(t, row)) for t, row in pairs]
        return self._confidence.worth_it(guesses, budget.least_chance, is_drawn=is_drawn)

    def _share(self, token: int, row: F32) -> float:
        """Return the head's probability of a token."""
        return float(softmax(row.astype(np.float64))[np.searchsorted(self._tokens, token)])

    def judge(self, request: RequestView, verdict: Verdict) -> None:
        self._confidence.judge(request, self._guesses.pop(request.id, ()), verdict)

    def forget(self, request: RequestView) -> None:
        self._guesses.pop(request.id, None)
