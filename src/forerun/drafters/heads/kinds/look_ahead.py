"""Look-ahead embeddings (PaSS, Monea et al. 2023): the target itself guesses.

    text, then look-ahead tokens 1 … k - 1     one pass of the target over all of them
    guess 0     from the target's logits after the last token
    guess i     from those at look-ahead token i, which sees the text and those before it

A look-ahead token is the embedding of id 0 plus a trained vector. All other weights are the
target's own. The pass has its own cache, since drafters never see the target's. A round is
therefore two passes of the target, and guess 0 is right whatever was trained.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from forerun.drafters.base import Budget, RequestView
from forerun.drafters.draft_model import DraftModel
from forerun.drafters.heads.config import HeadConfig
from forerun.drafters.heads.folder import HeadFolder
from forerun.drafters.heads.places import Places
from forerun.drafters.own_cache import MAX_KNOWN
from forerun.errors import InvalidWeights
from forerun.kernels import Plan
from forerun.models.llama import LlamaModel
from forerun.types import Proposal, Span, Tree, Verdict

F32 = npt.NDArray[np.float32]

_VECTORS = "look_ahead.weight"


def pass_shapes(config: HeadConfig) -> dict[str, tuple[int, ...]]:
    return {_VECTORS: (config.num_guesses - 1, config.target_hidden_size)}


class LookAhead(DraftModel):
    """Guesses in one pass for all requests. Laws depend on the length of the path alone."""

    def __init__(self, folder: HeadFolder, target: LlamaModel) -> None:
        vocab_size = target.config.vocab_size
        super().__init__(target, vocab_size)
        config = folder.config
        if config.num_guesses < 2 or config.draft_vocab_size != vocab_size:
            raise InvalidWeights(
                f"{folder.path}: pass needs 2 or more guesses, of all {vocab_size} ids; it has "
                f"{config.num_guesses} guesses of {config.draft_vocab_size} ids: train again."
            )
        folder.check(pass_shapes(config))
        self._vectors = folder.float32(_VECTORS)
        self._places = Places(np.arange(vocab_size), vocab_size)

    def commit(self, request: RequestView, verdict: Verdict) -> None:
        row = self._rows[request.id]
        row.cut(row.num_committed)
        self._places.judge(request, verdict)

    def end(self, request: RequestView) -> None:
        super().end(request)
        self._places.forget(request)

    def _propose(
        self, requests: Sequence[RequestView], budgets: Sequence[Budget]
    ) -> list[Proposal]:
        for request in requests:  # asked again after an error, it must feed the last token again
            self._rows[request.id].cut(max(0, len(request.tokens) - 1))
        within = self._let_in(requests, map(self._within, requests, budgets))
        pairs = zip(requests, within, strict=True)
        depths = {r.id: min(b.depth, len(self._vectors) + 1) for r, b in pairs}
        laws = self._run([r for r in requests if depths[r.id]], depths)
        return [
            self._places.grown(request, budget, laws[request.id])
            if request.id in laws
            else Proposal.empty()
            for request, budget in zip(requests, within, strict=True)
        ]

    def _run(self, requests: Sequence[RequestView], depths: dict[int, int]) -> dict[int, F32]:
        """Feed committed tokens and, for requests fed to their end, look-ahead tokens.

        Returns logits [depth, V] of these requests, by id."""
        left = max(MAX_KNOWN, len(requests))
        spans: dict[int, Span] = {}
        num_known: dict[int, int] = {}
        added = []
        for request in sorted(requests, key=self._num_behind):
            row, num_behind = self._rows[request.id], self._num_behind(request)
            num = min(left, num_behind)
            if not num:
                continue
            start, more = row.num_committed, depths[request.id] - 1 if num == num_behind else 0
            tokens = (*request.tokens[start : start + num], *(0,) * more)
            wanted = tuple(range(num - 1, len(tokens))) if num == num_behind else ()
            spans[request.id] = Span(start, tokens, Tree.chain(len(tokens)), wanted)
            row.table.reserve(len(tokens))
            added += [np.zeros((num, self._vectors.shape[1]), np.float32), self._vectors[:more]]
            num_known[request.id] = num
            left -= num
        if not spans:
            return {}
        plan = Plan.build([(span, self._rows[idx].table) for idx, span in spans.items()])
        logits = self._model.forward(plan, self._cache, added=np.concatenate(added))
        for request_id, num in num_known.items():
            row = self._rows[request_id]
            row.num_committed += num
            row.is_waiting = not spans[request_id].wanted
        owner = np.repeat([*spans], [len(span.wanted) for span in spans.values()])
        return {idx: logits[owner == idx] for idx, span in spans.items() if span.wanted}
