"""The likeliest guesses of a block, among the best candidates of each place."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from forerun.drafters.base import RequestView, context_of
from forerun.drafters.growing import Path, Ranked
from forerun.drafters.heads.kinds.block_head import BlockHead
from forerun.types import Acceptance

F32 = npt.NDArray[np.float32]

# Candidates of a place, before the Markov step: over all tokens that would cost more than a pass.
_NUM_CANDIDATES: Final = 64
_NUM_NOISY: Final = 512  # tokens that noise is added to first; it can hardly lift an unlikelier one
_NUM_RANKED: Final = 8


def has_ranks(request: RequestView) -> bool:
    """Return whether guesses are picked, and the request's options leave logits alone."""
    params = request.params
    if params.truncates or context_of(request).changes_logits(params):
        return False
    return params.temperature == 0 or params.acceptance is Acceptance.COUPLED


class BlockRanks:
    """Returns, after any path of guesses, a few tokens and the logarithm of their probability among
    the candidates, the likeliest first. Coupled noise is known in advance, so it is added."""

    def __init__(self, head: BlockHead, request: RequestView, logits: F32, gates: F32) -> None:
        """`logits` [places, draft V] are those before the Markov step; `gates` [places, rank]."""
        self._head, self._gates = head, gates
        self._sharpness, temperature = 1.0, request.params.temperature
        ids = _best(logits, _NUM_CANDIDATES if temperature == 0 else _NUM_NOISY)
        found = np.take_along_axis(logits, ids, axis=1)
        if temperature > 0:
            self._sharpness, first = 1 / temperature, len(request.tokens)
            ids = np.sort(ids, axis=1)  # `Noise.gumbel` takes ascending ids
            found = np.take_along_axis(logits, ids, axis=1) * self._sharpness
            pairs = enumerate(head.tokens[ids], start=first)
            found = found + np.stack([request.noise.gumbel(at, row) for at, row in pairs])
            best = _best(found, _NUM_CANDIDATES)
            ids = np.take_along_axis(ids, best, axis=1)
            found = np.take_along_axis(found, best, axis=1)
        self._tokens, self._logits = head.tokens[ids], found
        self._out = head.markov_out[ids]  # [places, candidates, rank]

    def __call__(self, path: Path, num: int) -> list[Ranked]:
        place = len(path)
        if place == len(self._logits):
            return []
        logits = self._logits[place]
        if path:
            step = self._head.markov_step(path[-1], self._gates[place])
            logits = logits + self._sharpness * (self._out[place] @ step)
        best = np.argsort(-logits, kind="stable")[: min(num, _NUM_RANKED)]
        whole = logits[best[0]] + np.log(np.exp(logits - logits[best[0]]).sum())
        shares = (logits[best] - whole).tolist()
        return list(zip(self._tokens[place][best].tolist(), shares, strict=True))


def _best(values: npt.NDArray[np.floating[Any]], num: int) -> npt.NDArray[np.int64]:
    """Return the indices of the `num` greatest values of each row, in any order."""
    num = min(num, values.shape[1])
    found: npt.NDArray[np.int64] = np.argpartition(values, -num, axis=1)[:, -num:]
    return found
