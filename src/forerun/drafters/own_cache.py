"""Base of drafters with a cache of their own: its rows, and how many each request may have."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Generic, TypeVar

from forerun.cache import BlockTable, KVCache
from forerun.drafters.base import Budget, RequestView
from forerun.types import Proposal

MAX_KNOWN: Final = 256  # known tokens fed per `propose`, so that no prompt delays a step for long


@dataclass
class Row:
    """One request's part of the drafter's cache.

    The first `num_committed` rows are of committed tokens. The fed nodes of the latest proposal
    follow, in node order. Further committed tokens are fed at the next proposal. A long prompt
    takes several proposals; meanwhile `num_promised` rows are kept free for the request.
    """

    table: BlockTable
    num_committed: int = 0
    num_promised: int = 0
    is_waiting: bool = False  # as of the last `propose`; see `CachedDrafter.is_waiting`

    @property
    def num_missing(self) -> int:
        """Pages still to be taken for the promised rows."""
        return self.table.num_missing(self.num_promised)

    def cut(self, num_rows: int) -> None:
        """Drop the rows after the first `num_rows` tokens, and those of uncommitted nodes."""
        self.num_committed = min(self.num_committed, num_rows)
        if self.table.length > self.num_committed:
            self.table.truncate_to(self.num_committed)


RowT = TypeVar("RowT", bound=Row)


class OwnCache(ABC, Generic[RowT]):
    """Everything of a `CachedDrafter` but the guessing.

    A request gets no guesses while the cache is full or its prompt is not fed to the end."""

    _cache: KVCache  # set by `allocate`

    def __init__(self) -> None:
        self._rows: dict[int, RowT] = {}

    @property
    def num_requests(self) -> int:
        return len(self._rows)

    def end(self, request: RequestView) -> None:
        row = self._rows.pop(request.id, None)
        if row is not None:
            row.table.free()

    def num_pages_in_use(self) -> int:
        return self._cache.pool.num_pages - self._cache.pool.num_free

    def propose(self, requests: Sequence[RequestView], budgets: Sequence[Budget]) -> list[Proposal]:
        try:
            return self._propose(requests, budgets)
        except BaseException:
            for request in requests:  # drop the rows of a half-made proposal
                row = self._rows[request.id]
                row.cut(row.num_committed)
            raise

    @abstractmethod
    def _propose(
        self, requests: Sequence[RequestView], budgets: Sequence[Budget]
    ) -> list[Proposal]: ...

    def has_room_for(self, request: RequestView) -> bool:
        """Return whether the free pages are enough for the request's tokens."""
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

    def _let_in(self, requests: Sequence[RequestView], budgets: Iterable[Budget]) -> list[Budget]:
        """Limit each depth to the pages that are free and not promised to another request.

        First come, first served. What each request gets becomes its promise."""
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
            within.append(budget if depth == budget.depth else replace(budget, depth=depth))
        return within


def _num_rows(num_tokens: int, depth: int, budget: Budget) -> int:
    """Return the rows of all known tokens and all guesses but the deepest, which are never fed."""
    return num_tokens + (depth - 1) * budget.num_branches
