"""One request's rows in the cache, in logical order."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Protocol

import numpy as np

from forerun.cache.page_pool import PagePool
from forerun.types import IntArray


class RowMover(Protocol):
    """Whoever owns the K and V rows."""

    def move_rows(self, sources: IntArray, targets: IntArray) -> None:
        """Copy slot to slot, as if all were read before any is written."""
        ...


class BlockTable:
    """The pages of one request, and how many rows of them are in use.

        row      0 1 2 3 | 4 5 6 7 | 8 9 . .      length 10, page_size 4
        page       7     |    2    |    5         slot of row 9: 5 · 4 + 1

    A round reserves rows for its span, writes them, and keeps those that held:

        start = table.reserve(len(span))
        …one pass…
        table.keep(start, path)                    or truncate_to(start + num_held)
    """

    def __init__(self, pool: PagePool, mover: RowMover) -> None:
        self._pool = pool
        self._mover = mover
        self._pages: list[int] = []
        self._length = 0

    @property
    def length(self) -> int:
        """Rows in use: committed, and reserved for the pass under way."""
        return self._length

    @property
    def pages(self) -> tuple[int, ...]:
        return tuple(self._pages)

    def reserve(self, num_tokens: int) -> int:
        """Make room for `num_tokens` more rows; returns the first of them.

        Raises `CacheFull` and changes nothing when the pool has too few pages.
        """
        assert num_tokens >= 0, num_tokens
        start = self._length
        num_missing = self._pool.pages_for(start + num_tokens) - len(self._pages)
        self._pages += self._pool.take(max(0, num_missing))
        self._length = start + num_tokens
        return start

    def truncate_to(self, length: int) -> None:
        """Forget the rows from `length` on: frees whole pages past the new end, nothing else."""
        assert 0 <= length <= self._length, (length, self._length)
        num_pages = self._pool.pages_for(length)
        self._pool.release(self._pages[num_pages:])
        del self._pages[num_pages:]
        self._length = length

    def keep(self, start: int, path: Sequence[int]) -> None:
        """Of the rows from `start` on keep those at offsets `path`, in that order; drop the rest.

        `path` are indices into the span that was written at `start`, from the root down: the
        last emitted token is 0, node n of its proposal is n + 1.
        """
        assert all(a < b for a, b in pairwise(path)), path
        assert not path or (path[0] >= 0 and start + path[-1] < self._length), (start, path)
        slots = self.slots(self._length)
        moves = [(offset, to) for to, offset in enumerate(path) if offset != to]
        if moves:
            sources, targets = np.array(moves, dtype=np.int64).T + start
            self._mover.move_rows(slots[sources], slots[targets])
        self.truncate_to(start + len(path))

    def free(self) -> None:
        self.truncate_to(0)

    def slots(self, length: int) -> IntArray:
        """The slots of rows 0 … length-1."""
        assert length <= self._length, (length, self._length)
        pages = np.array(self._pages, dtype=np.int64)
        lanes = np.arange(self._pool.page_size, dtype=np.int64)
        return (pages[:, None] * self._pool.page_size + lanes).reshape(-1)[:length]
