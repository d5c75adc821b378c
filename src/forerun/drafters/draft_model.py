"""A smaller model of the same tokenizer, or the target's own first layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from forerun.drafters.base import Budget, RequestView
from forerun.drafters.growing import Growth
from forerun.drafters.law import DraftLaw
from forerun.drafters.own_cache import OwnCache, Row
from forerun.kernels import Plan, PlanRow
from forerun.models.llama import LlamaModel
from forerun.types import FloatArray, Proposal, Span, Tree, Verdict

_MAX_KNOWN: Final = 256  # known tokens fed per proposal, so that no prompt holds up a step for long


class DraftModel(OwnCache[Row]):
    """Batched over requests: one pass per level of the trees.

    Rejected guesses are cut from the cache at commit; nothing is fed before it is needed: the
    prompt at the first proposal, and after a full accept the last guess, which was never fed,
    together with the bonus token.
    """

    picks = False

    def __init__(self, model: LlamaModel, vocab_size: int) -> None:
        super().__init__()
        self._model = model
        self._vocab_size = vocab_size  # the target's

    @property
    def row_bytes(self) -> int:
        return self._model.row_bytes

    def allocate(self, num_pages: int, page_size: int) -> None:
        self._cache = self._model.new_cache(num_pages, page_size)

    def begin(self, request: RequestView) -> None:
        """A request that was preempted begins again; then its row is there, and empty."""
        if request.id not in self._rows:
            self._rows[request.id] = Row(self._cache.new_table())

    def commit(self, request: RequestView, verdict: Verdict) -> None:
        row = self._rows[request.id]
        num_fed = row.table.length - row.num_committed
        accepted = [node for node in verdict.path if node < num_fed]
        row.table.keep(row.num_committed, accepted)
        row.num_committed += len(accepted)

    @property
    def max_len(self) -> int:
        return self._model.config.max_len

    def propose(self, requests: Sequence[RequestView], budgets: Sequence[Budget]) -> list[Proposal]:
        try:
            return self._propose(requests, budgets)
        except BaseException:
            for request in requests:  # whatever was fed half-way is forgotten
                row = self._rows[request.id]
                row.cut(row.num_committed)
            raise

    def _propose(
        self, requests: Sequence[RequestView], budgets: Sequence[Budget]
    ) -> list[Proposal]:
        for request in requests:  # it may be asked again, after another drafter or it itself threw
            self._rows[request.id].cut(max(0, len(request.tokens) - 1))
        within = self._let_in(requests, map(self._within, requests, budgets))
        growths = [Growth(r, b) for r, b in zip(requests, within, strict=True)]
        known = self._catch_up([r for r, g in zip(requests, growths, strict=True) if g.level])
        growing = [(r, g) for r, g in zip(requests, growths, strict=True) if r.id in known]
        logits = [known[request.id] for request, _ in growing]
        for request_id in known:
            self._rows[request_id].is_waiting = False
        while growing:
            self._extend(growing, logits)
            growing = [(r, g) for r, g in growing if g.level and not g.is_full]
            if growing:
                logits = self._feed(growing)
        return [growth.proposal() for growth in growths]

    def _within(self, request: RequestView, budget: Budget) -> Budget:
        """No deeper than the draft model's own context reaches; nothing after no text at all."""
        if not request.tokens or not self._knows(request):
            return Budget(0)
        room = self.max_len - len(request.tokens) + 1
        depth = max(0, min(budget.depth, room))
        return replace(budget, depth=depth)

    def _knows(self, request: RequestView) -> bool:
        """Whether its table, which may end before the target's, has all that is not fed yet."""
        num_known = self._model.config.vocab_size
        if num_known >= self._vocab_size:
            return True
        return all(t < num_known for t in request.tokens[self._rows[request.id].num_committed :])

    def _catch_up(self, requests: Sequence[RequestView]) -> dict[int, FloatArray]:
        """Feed what was committed since, at most `_MAX_KNOWN` tokens in all, the shortest first.

        The logits [V] after the last token of each request, by id, where all of it is fed now.
        """
        left = max(_MAX_KNOWN, len(requests))
        spans: dict[int, Span] = {}
        for request in sorted(requests, key=self._num_behind):
            row = self._rows[request.id]
            start, end = row.num_committed, row.num_committed + left
            chunk = request.tokens[start:end]
            if chunk:
                is_last = end >= len(request.tokens)
                spans[request.id] = Span.prompt_chunk(start, chunk, is_last=is_last)
                row.table.reserve(len(chunk))
                left -= len(chunk)
        if not spans:
            return {}
        pairs = [(span, self._rows[request_id].table) for request_id, span in spans.items()]
        logits = self._model.forward(Plan.build(pairs), self._cache)
        for request_id, span in spans.items():
            self._rows[request_id].num_committed += len(span)
        read = (request_id for request_id, span in spans.items() if span.wanted)
        return dict(zip(read, logits, strict=True))

    def _num_behind(self, request: RequestView) -> int:
        return len(request.tokens) - self._rows[request.id].num_committed

    def _extend(
        self, growing: Sequence[tuple[RequestView, Growth]], logits: Sequence[FloatArray]
    ) -> None:
        """Guess below every node of the current level; `logits` are in the order of the nodes."""
        rows, num = iter(logits), self._vocab_size
        for request, growth in growing:
            level = [DraftLaw.served(next(rows), request, path, num) for _, path in growth.level]
            growth.extend(level)

    def _feed(self, growing: Sequence[tuple[RequestView, Growth]]) -> list[FloatArray]:
        """One pass over the newest nodes of every tree."""
        rows = []
        for request, growth in growing:
            row = self._rows[request.id]
            proposal = growth.proposal()
            num_written = row.table.length - row.num_committed
            new = tuple(range(num_written, len(proposal)))
            row.table.reserve(len(new))
            span = Span(row.num_committed, proposal.tokens, Tree(proposal.tree.parents), new)
            rows.append(PlanRow.of(span, row.table, num_written))
        return list(self._model.forward(Plan(tuple(rows)), self._cache))
