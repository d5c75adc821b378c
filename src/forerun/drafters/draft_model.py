"""The drafter over a smaller model with the same tokenizer, or the target's own first layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from forerun.cache import next_slots
from forerun.drafters.base import Budget, RequestView, context_of
from forerun.drafters.growing import Growth, Path
from forerun.drafters.law import DraftLaw
from forerun.drafters.own_cache import MAX_KNOWN, OwnCache, Row
from forerun.kernels import Plan, PlanRow, Scores
from forerun.models.llama import LlamaModel
from forerun.sampling import CoupledDraws
from forerun.types import ROOT, Acceptance, IntArray, Proposal, Span, Tree, Verdict


class DraftModel(OwnCache[Row]):
    """Guesses with a model of its own, batched over requests: one pass per level of the trees.

    Rejected guesses are cut from the cache at commit. Tokens are fed when a proposal needs them:
    the prompt at the first one, and after a full accept the last guess, which was never fed,
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
        """Make the request's row; after a preemption it is there already, and empty."""
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

    def _propose(
        self, requests: Sequence[RequestView], budgets: Sequence[Budget]
    ) -> list[Proposal]:
        for request in requests:  # asked again after an error, it must feed the last token again
            self._rows[request.id].cut(max(0, len(request.tokens) - 1))
        within = self._let_in(requests, map(self._within, requests, budgets))
        growths = [Growth(r, b) for r, b in zip(requests, within, strict=True)]
        asked = [(r, g) for r, g in zip(requests, growths, strict=True) if g.level]
        known = self._catch_up(asked)
        growing = [(r, g) for r, g in asked if r.id in known]
        rows = [known[request.id] for request, _ in growing]
        for request_id in known:
            self._rows[request_id].is_waiting = False
        while growing:
            self._extend(growing, rows)
            growing = [(r, g) for r, g in growing if g.level and not g.is_full]
            if growing:
                rows = self._feed(growing)
        return [growth.proposal() for growth in growths]

    def _within(self, request: RequestView, budget: Budget) -> Budget:
        """Limit the depth to the draft model's context; 0 for an empty text or unknown tokens."""
        if not request.tokens or not self._knows(request):
            return Budget(0)
        room = self.max_len - len(request.tokens) + 1
        depth = max(0, min(budget.depth, room))
        return replace(budget, depth=depth)

    def _knows(self, request: RequestView) -> bool:
        """Return whether all unfed tokens are in the model's vocabulary, which may be smaller."""
        num_known = self._model.config.vocab_size
        if num_known >= self._vocab_size:
            return True
        return all(t < num_known for t in request.tokens[self._rows[request.id].num_committed :])

    def _catch_up(self, asked: Sequence[tuple[RequestView, Growth]]) -> dict[int, Scores]:
        """Feed committed tokens that have no row yet: at most `MAX_KNOWN`, shortest backlog first.

        Returns the scores after the last token, by id of each request that is now fed to its end.
        """
        left = max(MAX_KNOWN, len(asked))
        spans: dict[int, Span] = {}
        draws: list[CoupledDraws | None] = []
        for request, growth in sorted(asked, key=lambda pair: self._num_behind(pair[0])):
            row = self._rows[request.id]
            start, end = row.num_committed, row.num_committed + left
            chunk = request.tokens[start:end]
            if chunk:
                is_last = end >= len(request.tokens)
                spans[request.id] = Span.prompt_chunk(start, chunk, is_last=is_last)
                draws.append(self._draws(request, growth, (ROOT,)) if is_last else None)
                row.table.reserve(len(chunk))
                left -= len(chunk)
        if not spans:
            return {}
        pairs = [(span, self._rows[request_id].table) for request_id, span in spans.items()]
        are_read = len(spans) == len(asked) and all(span.wanted for span in spans.values())
        growths = {request.id: growth for request, growth in asked}
        following = self._next_slots([(i, growths[i]) for i in spans]) if are_read else None
        rows = self._model.draw(Plan.build(pairs, following, is_draft=True), self._cache, draws)
        for request_id, span in spans.items():
            self._rows[request_id].num_committed += len(span)
        read = (request_id for request_id, span in spans.items() if span.wanted)
        return dict(zip(read, rows.each(), strict=True))

    def _num_behind(self, request: RequestView) -> int:
        return len(request.tokens) - self._rows[request.id].num_committed

    def _draws(
        self, request: RequestView, growth: Growth, nodes: Sequence[int]
    ) -> CoupledDraws | None:
        """Return single coupled guesses as draws with the target's noise, made where logits are.

        None if the host needs the logits: for siblings, for other verifiers, and to cut off ids
        that the target does not have."""
        params = request.params
        is_single = params.acceptance is Acceptance.COUPLED and growth.num_siblings == 1
        if not is_single or self._model.config.vocab_size > self._vocab_size:
            return None
        context = context_of(request)
        position, noise = len(request.tokens), request.noise
        return CoupledDraws(params, noise, position, context, (), growth.proposal(), nodes)

    def _extend(
        self, growing: Sequence[tuple[RequestView, Growth]], scores: Sequence[Scores]
    ) -> None:
        """Guess below every node of each level; `scores` are in the order of these nodes."""
        rows = iter(scores)
        for request, growth in growing:
            growth.extend([self._law(request, path, next(rows)) for _, path in growth.level])

    def _law(self, request: RequestView, path: Path, scores: Scores) -> DraftLaw | None:
        token = scores.token(0)
        if token is not None:
            return DraftLaw(np.array([token]), np.zeros(1), self._vocab_size)
        return DraftLaw.served(scores.row(0), request, path, self._vocab_size)

    def _feed(self, growing: Sequence[tuple[RequestView, Growth]]) -> list[Scores]:
        """Run one pass over the newest nodes of every tree."""
        rows, draws = [], []
        for request, growth in growing:
            row = self._rows[request.id]
            proposal = growth.proposal()
            num_written = row.table.length - row.num_committed
            new = tuple(range(num_written, len(proposal)))
            row.table.reserve(len(new))
            span = Span(row.num_committed, proposal.tokens, Tree(proposal.tree.parents), new)
            rows.append(PlanRow.of(span, row.table, num_written))
            draws.append(self._draws(request, growth, new))
        following = self._next_slots([(r.id, g) for r, g in growing])
        return self._model.draw(
            Plan(tuple(rows), following, is_draft=True), self._cache, draws
        ).each()

    def _next_slots(
        self, growths: Sequence[tuple[int, Growth]]
    ) -> tuple[IntArray | None, ...] | None:
        """Return the slots of the next guesses, so that the kernels may begin the next pass early.

        `growths` are by request id. None unless every growth goes on as a chain."""
        if not self._model.kernels.begins_early or not all(g.goes_on for _, g in growths):
            return None
        return next_slots((self._rows[idx].table, growth.num_ahead) for idx, growth in growths)
