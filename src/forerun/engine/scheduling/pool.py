"""What the scheduler asks of a cache: counts of pages, and rows for requests."""

from __future__ import annotations

from typing import Protocol


class Pool(Protocol):
    """One cache as the scheduler sees it. Requests are named by their id."""

    @property
    def num_pages(self) -> int: ...

    @property
    def num_free(self) -> int: ...

    def pages_for(self, num_rows: int) -> int:
        """How many pages hold `num_rows` rows."""
        ...

    def num_missing(self, request_id: int, num_rows: int) -> int:
        """Free pages it would use up to reach `num_rows` rows, with what it holds or would find.

        Never falls as `num_rows` grows; 0 for a request that has no use for this cache.
        """
        ...

    def attach(self, request_id: int) -> None:
        """It runs from now on; rows that are known already are attached."""
        ...

    def release(self, request_id: int) -> None:
        """It runs no more, or not now: all its pages are given up."""
        ...
