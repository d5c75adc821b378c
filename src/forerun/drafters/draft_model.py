"""A smaller model of the same tokenizer, or the target's own first layers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
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

_MAX_KNOWN: Final = 256  # known tokens fed per proposal, so that no prompt holds up a step for long


@dataclass
class _Row:
    """One request in the draft model's own cache.

    The cache holds the first `num_committed` tokens of the request, then the nodes of the latest
    proposal that were fed, in node order. What the request has beyond that is fed at the next
    proposal: the prompt at first, and after a full accept the last guess, which was never fed,
    together with the bonus token. A long prompt takes several proposals; `num_promised` rows are
    kept for it meanwhile.
    """

    table: BlockTable
    num_committed: int = 0
    num_promised: int = 0
    is_waiting: bool = False  # when it was asked last

    @property
    def num_missing(self) -> int:
        """Pages for what it was promised."""
        return self.table.num_missing(self.num_promised)

    def cut(self, num_rows: int) -> None:
        """Forget all that was fed behind the first `num_rows` tokens."""
        self.num_committed = min(self.num_committed, num_rows)
        self.table.truncate_to(self.num_committed)


class DraftModel:
    """Batched over requests: one pass per level of the trees.

    Rejected guesses are cut from the cache at commit; nothing is fed before it is needed. Where
    the cache is full, or a prompt is not yet read, it has nothing to say.
    """

    picks = False
    _cache: KVCache  # once allocated

    def __init__(self, model: LlamaModel, vocab_size: int) -> None:
        self._model = model
        self._vocab_size = vocab_size  # the target's
        self._rows: dict[int, _Row] = {}

    @property
    def row_bytes(self) -> int:
        return self._model.row_bytes

    def allocate(self, num_pages: int, page_size: int) -> None:
        self._cache = self._model.new_cache(num_pages, page_size)

    @property
    def num_requests(self) -> int:
        return len(self._rows)

    def begin(self, request: RequestView) -> None:
        """A request that was preempted begins again; then its row is there, and empty."""
        if request.id not in self._rows:
            self._rows[request.id] = _Row(self._cache.new_table())

    def commit(self, request: RequestView, verdict: Verdict) -> None:
        row = self._rows[request.id]
        num_fed = row.table.length - row.num_committed
        accepted = [node for node in verdict.path if node < num_fed]
        row.table.keep(row.num_committed, accepted)
        row.num_committed += len(accepted)

    def end(self, request: RequestView) -> None:
        row = self._rows.pop(request.id, None)
        if row is not None:
            row.table.free()

    @property
    def max_len(self) -> int:
        return self._model.config.max_len

    def num_pages_in_use(self) -> int:
        return self._cache.pool.num_pages - self._cache.pool.num_free

    def has_room_for(self, request: RequestView) -> bool:
        """Whether it could guess for it now."""
        row = self._rows.get(request.id)
        num_tokens = len(request.tokens)
        if row is None:
            return self._cache.pool.pages_for(num_tokens) <= self._cache.pool.num_free
        return row.table.num_missing(num_tokens) <= self._cache.pool.num_free

    def is_waiting(self, request: RequestView) -> bool:
        row = self._rows.get(request.id)
        return row is not None and row.is_waiting

    def evict(self, request: RequestView) -> None:
        row = self._rows.get(request.id)
        if row is not None:
            row.cut(0)
            row.num_promised = 0

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

    def _let_in(self, requests: Sequence[RequestView], budgets: Iterable[Budget]) -> list[Budget]:
        """First come, first served: as deep as there are pages for, beside what is promised."""
        left = self._cache.pool.num_free - sum(row.num_missing for row in self._rows.values())
        within = []
        for request, budget in zip(requests, budgets, strict=True):
            row, num_tokens = self._rows[request.id], len(request.tokens)
            left += row.num_missing
            row.num_promised, row.is_waiting = 0, budget.depth > 0
            depth = budget.depth
            while depth and row.table.num_missing(_num_rows(num_tokens, depth, budget)) > left:
                depth -= 1
            if depth:
                row.num_promised = _num_rows(num_tokens, depth, budget)
            left -= row.num_missing
            within.append(replace(budget, depth=depth))
        return within

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


def _num_rows(num_tokens: int, depth: int, budget: Budget) -> int:
    """All known tokens, and all guesses but the deepest, which are never fed."""
    return num_tokens + (depth - 1) * budget.num_branches
