"""The drafter over heads whose outputs are fed back to them: EAGLE-3, MTP."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from forerun.drafters.base import Budget, RequestView
from forerun.drafters.growing import Growth
from forerun.drafters.heads.feature_cache import FeatureCache
from forerun.drafters.heads.fed_back_head import FedBackHead
from forerun.drafters.law import DraftLaw
from forerun.kernels import Plan, PlanRow
from forerun.types import ROOT, FloatArray, IntArray, Proposal, Span, Tree


class FedBack(FeatureCache[FedBackHead]):
    """Guesses with a `FedBackHead`, batched over requests: one pass per level of the trees."""

    def _propose(
        self, requests: Sequence[RequestView], budgets: Sequence[Budget]
    ) -> list[Proposal]:
        within = self._admitted(requests, budgets)
        if self._is_chain(requests, within):
            return [self._chained(requests[0], within[0])]
        growths = [Growth(r, b) for r, b in zip(requests, within, strict=True)]
        roots = self._catch_up([r for r, g in zip(requests, growths, strict=True) if g.level])
        growing = [
            _Growing(r, g, roots[r.id])
            for r, g in zip(requests, growths, strict=True)
            if r.id in roots
        ]
        for each in growing:
            self._rows[each.request.id].is_waiting = False
        while growing:
            for each in growing:
                each.extend(self._head.tokens, self._head.config.target_vocab_size)
            growing = [each for each in growing if each.growth.level and not each.growth.is_full]
            if growing:
                self._feed(growing)
        return [growth.proposal() for growth in growths]

    def _catch_up(self, requests: Sequence[RequestView]) -> dict[int, _Output]:
        """Feed pending hidden states.

        Returns the head's output after the last token, by id of each request now fed to its end."""
        spans: list[tuple[int, Span]] = []
        features = []
        for request, num in self._shares(requests):
            row = self._rows[request.id]
            features.append(row.waiting(num)())
            span = Span.prompt_chunk(
                row.num_committed, row.tokens(request, num), is_last=num == row.num_pending
            )
            row.table.reserve(num)
            spans.append((request.id, span))
        if not spans:
            return {}
        plan = Plan.build([(span, self._rows[request_id].table) for request_id, span in spans])
        logits, fed_back = self._head.known(plan, self._cache, np.concatenate(features))
        for request_id, span in spans:
            self._rows[request_id].fed(len(span))
        read = (request_id for request_id, span in spans if span.wanted)
        return dict(zip(read, zip(logits, fed_back, strict=True), strict=True))

    def _feed(self, growing: Sequence[_Growing]) -> None:
        """Run one pass over the newest nodes of every tree."""
        rows, given = [], []
        for each in growing:
            row, proposal = self._rows[each.request.id], each.growth.proposal()
            num_written = row.table.length - row.num_committed
            new = range(num_written, len(proposal))
            row.table.reserve(len(new))
            span = Span(row.num_committed, proposal.tokens, Tree(proposal.tree.parents), tuple(new))
            rows.append(PlanRow.of(span, row.table, num_written))
            given += [each.outputs[proposal.tree.parents[node]][1] for node in new]
        outputs = zip(
            *self._head.guessed(Plan(tuple(rows)), self._cache, np.stack(given)), strict=True
        )
        for each, row_ in zip(growing, rows, strict=True):
            for node in range(row_.num_written, len(row_.span)):
                each.outputs[node] = next(outputs)


_Output = tuple[FloatArray, FloatArray]  # logits [draft V], and the output to feed back [E]


class _Growing:
    """A proposal in the making, and the head's output after each of its nodes."""

    def __init__(self, request: RequestView, growth: Growth, root: _Output) -> None:
        self.request = request
        self.growth = growth
        self.outputs = {ROOT: root}

    def extend(self, tokens: IntArray, vocab_size: int) -> None:
        self.growth.extend(
            [
                DraftLaw.served(self.outputs[node][0], self.request, path, vocab_size, tokens)
                for node, path in self.growth.level
            ]
        )
