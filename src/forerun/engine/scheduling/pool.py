"""A cache as the scheduler sees it: pages that are free, and pages that are promised."""

from __future__ import annotations

from bisect import bisect_right
from typing import Protocol


class Pool(Protocol):
    """One cache as the scheduler sees it. Requests are named by their ids."""

    @property
    def num_pages(self) -> int: ...

    @property
    def num_free(self) -> int: ...

    def pages_for(self, num_rows: int) -> int:
        """How many pages hold `num_rows` rows."""

    def num_missing(self, request_id: int, num_rows: int) -> int:
        """How many free pages the request would use up to reach `num_rows` rows, beside the pages
        that it holds or would share.

        Never falls as `num_rows` grows; 0 for a request that does not use this cache.
        """

    def attach(self, request_id: int) -> None:
        """Give a request that begins to run the cached rows of its prefix."""

    def release(self, request_id: int) -> None:
        """Give up all pages of a request that stops running, for good or for now."""


class PagePromises:
    """The pages that grants of the next pass will take: promised pages cannot be granted twice."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._promised: dict[int, int] = {}
        self._num_promised = 0

    def promise(self, request_id: int, num_rows: int, most: int) -> int:
        """Promise a request pages for up to `most` rows beyond `num_rows`; return for how many.

        This replaces its earlier promise. If not even one row fits, nothing changes.
        """
        before = self._promised.get(request_id, 0)
        num_fitting, num_pages = most, self._pool.num_missing(request_id, num_rows + most)
        if num_pages and num_pages > (left := self._pool.num_free - self._num_promised + before):

            def num_missing(num: int) -> int:
                return self._pool.num_missing(request_id, num_rows + num)

            num_fitting = bisect_right(range(most), left, key=num_missing) - 1
            if num_fitting < 1:
                return 0
            num_pages = num_missing(num_fitting)
        self._promised[request_id] = num_pages
        self._num_promised += num_pages - before
        return num_fitting
