"""A smaller model of the same tokenizer, or the target's own first layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from forerun.cache import BlockTable, KVCache
from forerun.drafters.base import Budget, RequestView
from forerun.drafters.growing import Growth, Path
from forerun.drafters.law import DraftLaw
from forerun.kernels import Plan, PlanRow
from forerun.models.llama import LlamaModel
from forerun.sampling import Context, served_logits
from forerun.types import FloatArray, Proposal, Span, Tree, Verdict

_CHUNK: Final = 256  # prompt tokens per pass, so that a long prompt does not need much memory


@dataclass
class _Row:
    """One request in the draft model's own cache.

    The cache holds the first `num_committed` tokens of the request, then the nodes of the latest
    proposal that were fed, in node order. What the request has beyond that is fed at the next
    proposal: the whole prompt at first, and after a full accept the last guess, which was never
    fed, together with the bonus token.
    """

    table: BlockTable
    num_committed: int = 0


class DraftModel:
    """Batched over requests: one pass per level of the trees.

    Rejected guesses are cut from the cache at commit; nothing is fed before it is needed.
    """

    offers = False

    def __init__(self, model: LlamaModel, cache: KVCache, vocab_size: int) -> None:
        self._model = model
        self._cache = cache
        self._vocab_size = vocab_size  # the target's
        self._rows: dict[int, _Row] = {}

    def begin(self, request: RequestView) -> None:
        """A request that was preempted begins again; then its row is there, and empty."""
        if request.id not in self._rows:
            self._rows[request.id] = _Row(self._cache.new_table())

    def commit(self, request: RequestView, verdict: Verdict) -> None:
        row = self._rows[request.id]
        num_fed = row.table.length - row.num_committed
        held = [node for node in verdict.path if node < num_fed]
        row.table.keep(row.num_committed, held)
        row.num_committed += len(held)

    def end(self, request: RequestView) -> None:
        row = self._rows.pop(request.id, None)
        if row is not None:
            row.table.free()

    @property
    def num_pages(self) -> int:
        return self._cache.pool.num_pages

    @property
    def num_free(self) -> int:
        return self._cache.pool.num_free

    def pages_for(self, num_rows: int) -> int:
        return self._cache.pool.pages_for(num_rows)

    def num_missing(self, request_id: int, num_rows: int) -> int:
        """Pages it would take to hold `num_rows` rows of a request, as far as its context goes."""
        num_rows = min(num_rows, self._model.config.max_len)
        row = self._rows.get(request_id)
        return self.pages_for(num_rows) if row is None else row.table.num_missing(num_rows)

    def seat(self, request_id: int) -> None:
        """Nothing is fed before it is needed."""

    def unseat(self, request_id: int) -> None:
        """Preempted or gone: what it held is fed again when it is needed."""
        row = self._rows.get(request_id)
        if row is not None:
            row.table.free()
            row.num_committed = 0

    def propose(self, requests: Sequence[RequestView], budgets: Sequence[Budget]) -> list[Proposal]:
        try:
            return self._propose(requests, budgets)
        except BaseException:
            for request in requests:  # whatever was fed half-way is forgotten
                row = self._rows[request.id]
                row.table.truncate_to(row.num_committed)
            raise

    def _propose(
        self, requests: Sequence[RequestView], budgets: Sequence[Budget]
    ) -> list[Proposal]:
        growths = [Growth(r, self._within(r, b)) for r, b in zip(requests, budgets, strict=True)]
        growing = [pair for pair in zip(requests, growths, strict=True) if pair[1].level]
        logits = self._catch_up([request for request, _ in growing])
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
        room = self._model.config.max_len - len(request.tokens) + 1
        depth = max(0, min(budget.depth, room))
        return Budget(depth, budget.num_branches, budget.first_draw)

    def _knows(self, request: RequestView) -> bool:
        """Whether its table, which may end before the target's, has all that is not fed yet."""
        num_known = self._model.config.vocab_size
        if num_known >= self._vocab_size:
            return True
        return all(t < num_known for t in request.tokens[self._rows[request.id].num_committed :])

    def _catch_up(self, requests: Sequence[RequestView]) -> list[FloatArray]:
        """Feed what was committed since; the logits [V] after the last token of each request."""
        found: dict[int, FloatArray] = {}
        while len(found) < len(requests):
            waiting = [request for request in requests if request.id not in found]
            spans = [self._next_chunk(request) for request in waiting]
            tables = [self._rows[request.id].table for request in waiting]
            logits = iter(
                self._model.forward(Plan.build(zip(spans, tables, strict=True)), self._cache)
            )
            for request, span in zip(waiting, spans, strict=True):
                self._rows[request.id].num_committed += len(span)
                if span.wanted:
                    found[request.id] = next(logits)
        return [found[request.id] for request in requests]

    def _next_chunk(self, request: RequestView) -> Span:
        row = self._rows[request.id]
        start = row.num_committed
        chunk = request.tokens[start : start + _CHUNK]
        row.table.reserve(len(chunk))
        is_last = start + len(chunk) == len(request.tokens)
        return Span.prompt_chunk(start, chunk, is_last=is_last)

    def _extend(
        self, growing: Sequence[tuple[RequestView, Growth]], logits: Sequence[FloatArray]
    ) -> None:
        """Guess below every node of the current level; `logits` are in the order of the nodes."""
        rows = iter(logits)
        for request, growth in growing:
            growth.extend([self._law(request, path, next(rows)) for _, path in growth.level])

    def _law(self, request: RequestView, path: Path, row: FloatArray) -> DraftLaw:
        padded = np.full(self._vocab_size, -np.inf)
        num = min(len(row), self._vocab_size)
        padded[:num] = row[:num]
        context = Context(request.prompt, request.output).extended(path)
        params = request.params
        if params.temperature == 0:  # one-hot would leave no second-best to branch to
            params = params.before_argmax
        return DraftLaw.dense(served_logits(padded, params, context))

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
