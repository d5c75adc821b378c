"""The drafter over an EAGLE-3 head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from forerun.drafters.base import Budget, RequestView
from forerun.drafters.growing import Growth
from forerun.drafters.heads.eagle3_head import Eagle3Head
from forerun.drafters.law import DraftLaw
from forerun.drafters.own_cache import OwnCache, Row
from forerun.kernels import ChainNoise, Plan, PlanRow
from forerun.types import (
    ROOT,
    Acceptance,
    FloatArray,
    IntArray,
    Proposal,
    Span,
    Tree,
    Verdict,
)

_MAX_KNOWN: Final = 256  # known tokens fed per proposal, so that no prompt holds up a step for long
_MAX_PENDING: Final = 2048  # hidden states that wait to be fed, per request


@dataclass
class _Row(Row):
    """Row j of its cache is for position `first` + j of the text: rotations are relative, so the
    head may count from where hidden states are known."""

    first: int = 0
    pending: list[FloatArray] = field(default_factory=list)  # [n, layers · E] each, not fed yet

    @property
    def num_pending(self) -> int:
        return sum(map(len, self.pending))

    @property
    def next_position(self) -> int:
        """Of the hidden state that would go on where the last one ended."""
        return self.first + self.num_committed + self.num_pending

    def restart(self, position: int) -> None:
        self.cut(0)
        self.first, self.pending = position, []

    def waiting(self, num: int) -> FloatArray:
        """The first `num` of those that wait."""
        self.pending = [np.concatenate(self.pending)]
        return self.pending[0][:num]

    def fed(self, num: int) -> None:
        (whole,) = self.pending
        self.pending = [whole[num:]] if num < len(whole) else []
        self.num_committed += num


class Eagle3(OwnCache[_Row]):
    """Batched over requests: one pass per level of the trees.

    Rows of its cache come from the target's hidden states alone: what it fed back to itself while
    it guessed is cut at commit. Where a prompt began in the target's cache, nobody knows hidden
    states of that part, and its own cache begins behind it.
    """

    picks = False

    def __init__(self, head: Eagle3Head) -> None:
        super().__init__()
        self._head = head
        self._vocab_size = head.config.target_vocab_size

    @property
    def layers(self) -> tuple[int, ...]:
        return self._head.config.layers

    @property
    def max_len(self) -> int:
        return self._head.config.max_len

    @property
    def row_bytes(self) -> int:
        return self._head.row_bytes

    def allocate(self, num_pages: int, page_size: int) -> None:
        self._cache = self._head.new_cache(num_pages, page_size)

    def begin(self, request: RequestView) -> None:
        if request.id not in self._rows:
            self._rows[request.id] = _Row(self._cache.new_table())

    def tapped(self, request: RequestView, start: int, rows: Mapping[int, FloatArray]) -> None:
        row = self._rows[request.id]
        row.cut(row.num_committed)
        if start != row.next_position:
            row.restart(start)
        row.pending.append(np.concatenate([rows[layer] for layer in self.layers], axis=1))
        if row.num_pending > _MAX_PENDING:  # nobody asked for long: the latest are worth keeping
            newest = np.concatenate(row.pending)[-_MAX_PENDING // 2 :]
            row.restart(row.next_position - len(newest))
            row.pending = [newest]

    def commit(self, request: RequestView, _verdict: Verdict) -> None:
        row = self._rows[request.id]
        row.cut(row.num_committed)

    def evict(self, request: RequestView) -> None:
        super().evict(request)
        if request.id in self._rows:
            self._rows[request.id].restart(0)

    def _propose(
        self, requests: Sequence[RequestView], budgets: Sequence[Budget]
    ) -> list[Proposal]:
        for request in requests:
            row = self._rows[request.id]
            row.cut(row.num_committed)
        within = self._let_in(requests, map(self._within, requests, budgets))
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
                each.extend(self._head.tokens, self._vocab_size)
            growing = [each for each in growing if each.growth.level and not each.growth.is_full]
            if growing:
                self._feed(growing)
        return [growth.proposal() for growth in growths]

    def _is_chain(self, requests: Sequence[RequestView], budgets: Sequence[Budget]) -> bool:
        """Whether one pass can do it all: for one request, whose options leave logits alone."""
        if len(requests) != 1 or self._head.chain_kernels is None:
            return False
        request, budget, params = requests[0], budgets[0], requests[0].params
        if budget.depth == 0 or budget.num_branches > 1 or params.changes_logits:
            return False
        if len(request.output) < params.min_tokens:
            return False
        is_coupled = params.acceptance is Acceptance.COUPLED and not params.truncates
        num_pending = self._rows[request.id].num_pending
        return 0 < num_pending <= _MAX_KNOWN and (params.temperature == 0 or is_coupled)

    def _chained(self, request: RequestView, budget: Budget) -> Proposal:
        row = self._rows[request.id]
        num_known, depth = row.num_pending, budget.depth
        features = row.waiting(num_known)
        first = row.first + row.num_committed + 1
        tokens = (*request.tokens[first : first + num_known], *(0,) * (depth - 1))
        wanted = tuple(range(num_known - 1, len(tokens)))
        span = Span(row.num_committed, tokens, Tree.chain(len(tokens)), wanted)
        row.table.reserve(len(tokens))
        plan = Plan.build([(span, row.table)])
        temperature, key = request.params.temperature, request.noise.key
        noise = ChainNoise(temperature, key, len(request.tokens))
        picked = self._head.chain(plan, self._cache, features, depth, noise)
        row.fed(num_known)
        row.is_waiting = False
        return Proposal.chain([int(token) for token in picked[:, 0]])

    def _within(self, request: RequestView, budget: Budget) -> Budget:
        """Nothing where hidden states do not reach the last token but one."""
        row = self._rows[request.id]
        num_known = len(request.tokens) - 1
        if num_known < 1 or row.next_position != num_known or row.first >= num_known:
            return Budget(0)
        room = self.max_len - len(request.tokens) + 1
        return replace(budget, depth=max(0, min(budget.depth, room)))

    def _catch_up(self, requests: Sequence[RequestView]) -> dict[int, _Output]:
        """Feed the hidden states that wait, at most `_MAX_KNOWN` in all, the shortest first.

        What the head says after the last token of each request, by id, where all of it is fed now.
        """
        left = max(_MAX_KNOWN, len(requests))
        spans: list[tuple[int, Span]] = []
        features = []
        for request in sorted(requests, key=lambda r: self._rows[r.id].num_pending):
            row = self._rows[request.id]
            num = min(left, row.num_pending)
            if not num:
                continue
            features.append(row.waiting(num))
            token = row.first + row.num_committed + 1
            chunk = request.tokens[token : token + num]
            span = Span.prompt_chunk(row.num_committed, chunk, is_last=num == row.num_pending)
            row.table.reserve(num)
            spans.append((request.id, span))
            left -= num
        if not spans:
            return {}
        plan = Plan.build([(span, self._rows[request_id].table) for request_id, span in spans])
        logits, fed_back = self._head.known(plan, self._cache, np.concatenate(features))
        for request_id, span in spans:
            self._rows[request_id].fed(len(span))
        read = (request_id for request_id, span in spans if span.wanted)
        return dict(zip(read, zip(logits, fed_back, strict=True), strict=True))

    def _feed(self, growing: Sequence[_Growing]) -> None:
        """One pass over the newest nodes of every tree."""
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


_Output = tuple[FloatArray, FloatArray]  # logits [draft V], and what is fed back [E]


class _Growing:
    """A proposal in the making, and what the head said after each of its nodes."""

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
