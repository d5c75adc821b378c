"""Base of drafters over heads with a cache, whose rows are made of the target's hidden states."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, Generic, TypeVar

import numpy as np

from forerun.cache import next_slots
from forerun.drafters.base import Budget, RequestView, context_of
from forerun.drafters.heads.cached_head import CachedHead
from forerun.drafters.heads.confidence import Confidence, Guess
from forerun.drafters.own_cache import MAX_KNOWN, OwnCache, Row
from forerun.kernels import ChainNoise, Plan
from forerun.models.llama import TapRows
from forerun.types import Acceptance, FloatArray, Proposal, Span, Tree, Verdict

HeadT = TypeVar("HeadT", bound=CachedHead)

_MAX_PENDING: Final = 2048  # hidden states that wait to be fed, per request


@dataclass
class FeatureRow(Row):
    """One request's rows, and its hidden states that are not fed yet.

    Row j is for position `first` + j of the text. Rotary positions are relative, so the head may
    count from the first hidden state that is known."""

    first: int = 0
    pending: list[Mapping[int, FloatArray]] = field(default_factory=list)  # [n, E] by layer
    num_pending: int = 0  # the sum of their n
    guesses: list[Guess] = field(default_factory=list)  # the latest chain, until `commit`

    @property
    def next_position(self) -> int:
        """The position of the next hidden state, if it follows the last one without a gap."""
        return self.first + self.num_committed + self.num_pending

    def restart(self, position: int) -> None:
        self.cut(0)
        self.first, self.pending, self.num_pending = position, [], 0

    def waiting(self, num: int) -> Callable[[], FloatArray]:
        """Return a function that joins the first `num` pending hidden states: [num, layers · E].

        A pass that the kernels began early does not call it."""
        pending = tuple(self.pending)
        return lambda: np.concatenate([rows[:num] for rows in _joined(pending).values()], axis=1)

    def tokens(self, request: RequestView, num: int) -> tuple[int, ...]:
        """Return the tokens that follow the first `num` pending hidden states, one for each."""
        first = self.first + self.num_committed + 1
        return tuple(request.tokens[first : first + num])

    def fed(self, num: int) -> None:
        is_all = num == self.num_pending
        self.pending = [] if is_all else [{n: x[num:] for n, x in _joined(self.pending).items()}]
        self.num_pending -= num
        self.num_committed += num

    def keep_newest(self, num: int) -> None:
        """Drop all pending hidden states but the newest `num`; the cache restarts at these."""
        newest = {layer: rows[-num:] for layer, rows in _joined(self.pending).items()}
        self.restart(self.next_position - num)
        self.pending, self.num_pending = [newest], num


def _joined(pending: Sequence[Mapping[int, FloatArray]]) -> dict[int, FloatArray]:
    return {layer: np.concatenate([part[layer] for part in pending]) for layer in pending[0]}


class FeatureCache(OwnCache[FeatureRow], Generic[HeadT]):
    """Everything of a drafter over a `CachedHead` but how batches and trees are guessed.

    Rows come from the target's hidden states alone: those written while guessing are cut at commit.
    The hidden states of a prefix found in the target's prefix cache are unknown, so the head's own
    cache begins after it.
    """

    picks = False

    def __init__(self, head: HeadT) -> None:
        super().__init__()
        self._head = head
        head.prepare()
        self._confidence = Confidence()
        self._deepest = 0  # depth of the deepest chain asked for so far

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
            self._rows[request.id] = FeatureRow(self._cache.new_table())

    def num_behind(self, request: RequestView) -> int:
        row = self._rows.get(request.id)
        return 0 if row is None else row.num_pending

    def tapped(self, request: RequestView, start: int, rows: Mapping[int, FloatArray]) -> None:
        """Keep hidden states until a proposal is asked for, which may be many rounds later.

        Those of the previous pass are copied here: `TapRows` cannot be read any later."""
        row = self._rows[request.id]
        row.cut(row.num_committed)
        if start != row.next_position:
            row.restart(start)
        if row.pending:
            row.pending[-1] = self._read(row.pending[-1])
        if isinstance(rows, TapRows):
            row.pending.append(rows.of(self.layers))
            row.num_pending += rows.num_rows
        else:
            row.pending.append(self._read(rows))
            row.num_pending += len(rows[self.layers[0]])
        if row.num_pending > _MAX_PENDING:  # not asked for long: keep only the latest
            row.keep_newest(_MAX_PENDING // 2)

    def _read(self, rows: Mapping[int, FloatArray]) -> Mapping[int, FloatArray]:
        """Return copies of the head's layers: views would keep the arrays of whole passes."""
        return {layer: rows[layer].copy() for layer in self.layers}

    def commit(self, request: RequestView, verdict: Verdict) -> None:
        row = self._rows[request.id]
        row.cut(row.num_committed)
        guesses, row.guesses = row.guesses, []
        self._confidence.judge(request, guesses, verdict)

    def evict(self, request: RequestView) -> None:
        super().evict(request)
        if request.id in self._rows:
            self._rows[request.id].restart(0)

    def _admitted(self, requests: Sequence[RequestView], budgets: Sequence[Budget]) -> list[Budget]:
        """Drop the rows of earlier proposals and return what each request may spend."""
        for request in requests:
            row = self._rows[request.id]
            row.cut(row.num_committed)
        return self._let_in(requests, map(self._within, requests, budgets))

    def _within(self, request: RequestView, budget: Budget) -> Budget:
        """Limit the depth to the head's context; 0 if hidden states do not reach the last token
        but one."""
        row = self._rows[request.id]
        num_known = len(request.tokens) - 1
        if num_known < 1 or row.next_position != num_known or row.first >= num_known:
            return Budget(0)
        room = self.max_len - len(request.tokens) + 1
        depth = max(0, min(budget.depth, room))
        return budget if depth == budget.depth else replace(budget, depth=depth)

    def _is_chain(self, requests: Sequence[RequestView], budgets: Sequence[Budget]) -> bool:
        """Return whether one pass can make all guesses: for a single request, one branch, and
        options that leave logits alone."""
        if len(requests) != 1 or self._head.chain_kernels is None:
            return False
        request, budget, params = requests[0], budgets[0], requests[0].params
        if budget.depth == 0 or budget.num_branches > 1:
            return False
        if context_of(request).changes_logits(params):
            return False
        is_coupled = params.acceptance is Acceptance.COUPLED and not params.truncates
        num_pending = self._rows[request.id].num_pending
        return 0 < num_pending <= MAX_KNOWN and (params.temperature == 0 or is_coupled)

    def _chained(self, request: RequestView, budget: Budget) -> Proposal:
        row = self._rows[request.id]
        num_known, depth = row.num_pending, self._chain_depth(request, budget)
        features, known = row.waiting(num_known), row.tokens(request, num_known)
        tokens = known + known[-1:] * (self._num_rows(request, num_known + depth - 1) - num_known)
        wanted = tuple(range(num_known - 1, num_known - 1 + depth))
        span = Span(row.num_committed, tokens, Tree.chain(len(tokens)), wanted)
        row.table.reserve(len(tokens))
        following = next_slots([(row.table, depth + 1)]) if self._begins_early else None
        plan = Plan.build([(span, row.table)], following, is_draft=True)
        noise = ChainNoise(request.params.temperature, request.noise.key, len(request.tokens))
        picked = self._head.chain(plan, self._cache, features, depth, noise)
        row.fed(num_known)
        row.is_waiting = False
        row.guesses = [(int(token), share) for token, share, _ in picked.tolist()]
        guesses = row.guesses[: budget.depth]
        least = 0.0 if self._begins_early else budget.least_chance
        return self._confidence.worth_it(guesses, least, is_drawn=noise.temperature > 0)

    def _num_rows(self, request: RequestView, least: int) -> int:  # noqa: ARG002
        """Return how many rows a chain's pass runs: at least `least`."""
        return least

    def _has_room(self, request: RequestView, num_rows: int) -> bool:
        """Return whether the cache has room for a text of `num_rows` tokens."""
        num_missing = self._rows[request.id].table.num_missing(num_rows)
        return num_rows <= self.max_len and num_missing <= self._cache.pool.num_free

    @cached_property
    def _begins_early(self) -> bool:
        kernels = self._head.chain_kernels
        return kernels is not None and kernels.begins_early

    def _chain_depth(self, request: RequestView, budget: Budget) -> int:
        """Return the depth of a chain's pass.

        Where the kernels begin rounds early, each must be like the one before: as deep as the
        deepest so far, if there is room. Guesses beyond the budget are left out afterwards."""
        if not self._begins_early:
            return budget.depth
        self._deepest = max(self._deepest, budget.depth)
        has_room = self._has_room(request, len(request.tokens) + self._deepest - 1)
        return self._deepest if has_room else budget.depth

    def _shares(self, requests: Sequence[RequestView]) -> Iterator[tuple[RequestView, int]]:
        """Yield the requests to feed now, each with how many of its pending hidden states.

        The shortest backlog comes first; the sum is at most `MAX_KNOWN`, or the number of requests
        if that is larger."""
        left = max(MAX_KNOWN, len(requests))
        for request in sorted(requests, key=lambda r: self._rows[r.id].num_pending):
            num = min(left, self._rows[request.id].num_pending)
            if num:
                yield request, num
            left -= num
