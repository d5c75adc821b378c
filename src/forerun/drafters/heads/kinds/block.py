"""The drafter over a block head: one pass a round, whatever the number of guesses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt

from forerun.drafters.base import Budget, RequestView
from forerun.drafters.growing import Path, grow, grow_likeliest
from forerun.drafters.heads.feature_cache import FeatureCache
from forerun.drafters.heads.kinds.block_head import BlockHead
from forerun.drafters.heads.kinds.block_ranks import BlockRanks, has_ranks
from forerun.drafters.law import DraftLaw
from forerun.kernels import Plan
from forerun.types import Proposal, Span, Tree

F32 = npt.NDArray[np.float32]

# Sizes that passes are padded to. Kernels that compile or record passes by size take longer for a
# new size than for running it, and any number of rows may be pending when the head was not asked.
_SIZES: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)


class Block(FeatureCache[BlockHead]):
    """Guesses with a `BlockHead`, batched over requests.

    If guesses are picked, a tree has the likeliest ones, whatever its shape. All nodes of one depth
    have the logits of the same place, apart from the Markov step."""

    def _propose(
        self, requests: Sequence[RequestView], budgets: Sequence[Budget]
    ) -> list[Proposal]:
        within = self._admitted(requests, budgets)
        if self._is_chain(requests, within):
            budget, most = within[0], self._head.config.num_guesses
            if budget.depth > most:
                budget = replace(budget, depth=most)
            return [self._chained(requests[0], budget)]
        depths = {
            request.id: min(budget.depth, self._head.config.num_guesses)
            for request, budget in zip(requests, within, strict=True)
        }
        found = self._run([r for r in requests if depths[r.id]], depths)
        return [
            self._grown(request, budget, *found[request.id])
            if request.id in found
            else Proposal.empty()
            for request, budget in zip(requests, within, strict=True)
        ]

    def _run(
        self, requests: Sequence[RequestView], depths: dict[int, int]
    ) -> dict[int, tuple[F32, F32]]:
        """Feed pending hidden states and, for requests fed to their end, the places to guess.

        Returns logits [depth, draft V] and gates [depth, rank] of these requests, by id."""
        pairs, features, places, read = [], [], [], []
        for request, num in self._shares(requests):
            row = self._rows[request.id]
            is_all = num == row.num_pending
            more = depths[request.id] - 1 if is_all else 0
            tokens, known = row.tokens(request, num), row.waiting(num)()
            tokens += tokens[-1:] * more
            wanted = tuple(range(num - 1, len(tokens))) if is_all else ()
            span = Span(row.num_committed, tokens, Tree.chain(len(tokens)), wanted)
            row.table.reserve(len(tokens))
            pairs.append((request, num, span))
            features += [known, np.repeat(known[-1:], more, axis=0)]
            places += [*(0,) * num, *range(1, more + 1)]
            read += [request.id] * len(wanted)
        if not pairs:
            return {}
        plan = Plan.build([(span, self._rows[request.id].table) for request, _, span in pairs])
        logits, gates = self._head.run(
            plan, self._cache, np.concatenate(features), np.array(places)
        )
        for request, num, span in pairs:
            row = self._rows[request.id]
            row.fed(num)
            row.is_waiting = not span.wanted
        owner = np.array(read)
        return {idx: (logits[owner == idx], gates[owner == idx]) for idx in dict.fromkeys(read)}

    def _num_rows(self, request: RequestView, least: int) -> int:
        """Return the size of a chain's pass, padded with places that are not read.

        Without padding where rounds begin early, since these are alike anyway."""
        size = next((size for size in _SIZES if size >= least), least)
        row = self._rows[request.id]
        is_filled = not self._begins_early and self._has_room(request, row.num_committed + size)
        return size if is_filled else least

    def _grown(self, request: RequestView, budget: Budget, logits: F32, gates: F32) -> Proposal:
        head = self._head
        if budget.num_branches > 1 and has_ranks(request):
            return grow_likeliest(budget, BlockRanks(head, request, logits, gates))

        def law_after(path: Path) -> DraftLaw | None:
            place = len(path)
            if place == len(logits):
                return None
            row = head.after(path[-1], logits[place], gates[place]) if path else logits[0]
            vocab_size = head.config.target_vocab_size
            return DraftLaw.served(row, request, path, vocab_size, head.tokens)

        return grow(request, budget, law_after)
