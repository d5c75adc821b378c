"""One request's rows in the cache, in logical order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Protocol

import numpy as np

from forerun.cache.page_pool import PagePool
from forerun.types import IntArray


def next_slots(
    tables: Iterable[tuple[BlockTable, int] | None],
) -> tuple[IntArray | None, ...] | None:
    """Return the slots of the next rows of each (table, number of rows), None for each None.

    Returns None if pages are short.
    """
    slots = list[IntArray | None]()
    for one in tables:
        found = None if one is None else one[0].next_slots(one[1])
        if found is None and one is not None:
            return None
        slots.append(found)
    return tuple(slots)


class RowMover(Protocol):
    """The owner of the K and V rows."""

    def move_rows(self, sources: IntArray, targets: IntArray) -> None:
        """Copy rows from slot to slot, as if all were read before any is written."""


class BlockTable:
    """The pages of one request, and how many rows of them are in use.

        row      0 1 2 3 | 4 5 6 7 | 8 9 . .      length 10, page_size 4
        page       7     |    2    |    5         slot of row 9: 5 · 4 + 1

    A round reserves rows for its span, the pass writes them, and commit keeps the accepted ones:

        start = table.reserve(len(span))
        …one pass…
        table.keep(start, path)                    or truncate_to(start + num_accepted)

    Pages may be shared with other tables and with the prefix tree. Before a row of a shared page is
    written, the table replaces the page by a copy of its own.
    """

    def __init__(self, pool: PagePool, mover: RowMover) -> None:
        self._pool = pool
        self._mover = mover
        self._lanes = np.arange(pool.page_size, dtype=np.int64)
        self._pages: list[int] = []
        # The slots of all rows of `_pages`, once needed; then those of pages that were given up.
        self._slots: IntArray | None = None
        self._slot_pages: list[int] = []  # the pages of `_slots`
        # Both are read in every round, and written by this class alone.
        self.length = 0  # rows in use: committed, or reserved for the pass under way
        self.num_sealed = 0  # rows that `seal` declared committed: these may be shared

    @property
    def pages(self) -> tuple[int, ...]:
        return tuple(self._pages)

    def page(self, idx: int) -> int:
        return self._pages[idx]

    def num_missing(self, length: int) -> int:
        """How many pages it takes to reach `length` rows, with the copy of a shared last page."""
        if length <= self.length:
            return 0
        num = -(-length // self._pool.page_size) - len(self._pages)
        return (num if num > 0 else 0) + self._is_tail_shared

    @property
    def _is_tail_shared(self) -> bool:
        """Whether the next row belongs to a page that this table shares."""
        page_size = self._pool.page_size
        if self.length % page_size == 0:
            return False
        return not self._pool.is_private(self._pages[self.length // page_size])

    def reserve(self, num_tokens: int) -> int:
        """Make room for `num_tokens` more rows; return the index of the first.

        Raises `CacheFull` and changes nothing if the pool has too few pages.
        """
        assert num_tokens >= 0, num_tokens
        start = self.length
        if num_missing := self.num_missing(start + num_tokens):
            fresh = self._pool.take(num_missing)
            if self._is_tail_shared:
                self._copy_page(start // self._pool.page_size, fresh.pop())
            if fresh:
                self._append(fresh)
        self.length = start + num_tokens
        return start

    def next_slots(self, num: int) -> IntArray | None:
        """Take pages for the next `num` rows; return the slots of these rows, and of as many more
        as the pages have room for. None if pages are short, or the last page is shared."""
        page_size = self._pool.page_size
        num_pages = -(-(self.length + num) // page_size) - len(self._pages)
        if self._is_tail_shared:
            return None
        if num_pages > 0:
            if num_pages > self._pool.num_free:
                return None
            self._append(self._pool.take(num_pages))
        return self._all_slots()[self.length : len(self._pages) * page_size]

    def truncate_to(self, length: int) -> None:
        """Drop the rows from `length` on, and free the whole pages after the new end."""
        assert 0 <= length <= self.length, (length, self.length)
        num_pages = self._pool.pages_for(length)
        if num_pages < len(self._pages):
            self._pool.release(self._pages[num_pages:][::-1])
            del self._pages[num_pages:]
        self.length = length
        self.num_sealed = min(self.num_sealed, length)

    def keep(self, start: int, path: Sequence[int]) -> None:
        """Of the rows from `start` on, keep those at offsets `path`, in that order; drop the rest.

        `path` are ascending indices into the span that was written at `start`: the last emitted
        token is 0, node n of its proposal is n + 1.
        """
        if path and path[-1] != len(path) - 1:  # some rows have to move
            moves = [(offset, to) for to, offset in enumerate(path) if offset != to]
            assert all(a < b for a, b in pairwise((-1, *path))), path
            assert start + path[-1] < self.length, (start, path)
            first, end = start + moves[0][1], start + len(path)
            self._make_private(first, end)
            sources, targets = np.array(moves, dtype=np.int64).T + start
            slots = self.slots(self.length)
            self._mover.move_rows(slots[sources], slots[targets])
            self.num_sealed = min(self.num_sealed, first)
        if start + len(path) != self.length:  # else all rows stay, and pages taken for later ones
            self.truncate_to(start + len(path))

    def seal(self) -> None:
        """Declare all rows committed."""
        self.num_sealed = self.length

    def fork(self) -> BlockTable:
        """Return a table with the same rows, which shares the pages until one of the two writes."""
        twin = BlockTable(self._pool, self._mover)
        twin.adopt(self._pages[: self._pool.pages_for(self.length)], self.length)
        twin.num_sealed = self.num_sealed
        return twin

    def adopt(self, pages: Sequence[int], length: int) -> None:
        """Fill an empty table with rows of pages that it shares."""
        assert not self._pages, self._pages
        assert len(pages) == self._pool.pages_for(length), (pages, length)
        self._pool.share(pages)
        self._pages = list(pages)
        self._slots = None
        self.length = self.num_sealed = length

    def unshare_tail(self) -> None:
        """Replace the last page by a copy if it is shared, so that its next row can be written."""
        self._make_private(max(0, self.length - 1), self.length)

    def swap_page(self, idx: int, page: int) -> None:
        """Replace a page by another one that has the same rows."""
        if page != self._pages[idx]:
            self._pool.share([page])
            self._pool.release([self._pages[idx]])
            self._pages[idx] = page
            self._slots = None

    def free(self) -> None:
        self.truncate_to(0)

    def slots(self, length: int) -> IntArray:
        """The slots of rows 0 … length-1; the array must not be written to."""
        assert length <= self.length, (length, self.length)
        return self._all_slots()[:length]

    def _append(self, pages: list[int]) -> None:
        first = len(self._pages)
        self._pages += pages
        if self._slots is not None and self._slot_pages[first : len(self._pages)] != pages:
            known = self._slots[: first * self._pool.page_size]
            self._slots = np.concatenate((known, self._slots_of(pages)))
            self._slot_pages = self._pages.copy()

    def _all_slots(self) -> IntArray:
        if self._slots is None:
            self._slots, self._slot_pages = self._slots_of(self._pages), self._pages.copy()
        return self._slots

    def _slots_of(self, pages: list[int]) -> IntArray:
        firsts = np.array(pages, dtype=np.int64)[:, None] * self._pool.page_size
        return (firsts + self._lanes).reshape(-1)

    def _make_private(self, first_row: int, end_row: int) -> None:
        """Replace the shared pages among those of rows first_row … end_row-1 by copies."""
        page_idxs = range(first_row // self._pool.page_size, self._pool.pages_for(end_row))
        shared = [idx for idx in page_idxs if not self._pool.is_private(self._pages[idx])]
        for idx, page in zip(shared, self._pool.take(len(shared)), strict=True):
            self._copy_page(idx, page)

    def _copy_page(self, idx: int, fresh: int) -> None:
        """Replace page `idx` by the page `fresh`, and copy its rows there."""
        page_size = self._pool.page_size
        num_rows = min(page_size, self.length - idx * page_size)
        lanes = self._lanes[:num_rows]
        old, self._pages[idx] = self._pages[idx], fresh
        self._slots = None
        self._mover.move_rows(old * page_size + lanes, fresh * page_size + lanes)
        self._pool.release([old])
