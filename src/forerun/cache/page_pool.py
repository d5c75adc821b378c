"""Which pages of the cache are free: integers only, no arrays."""

from __future__ import annotations

from collections.abc import Sequence

from forerun.errors import ForerunError, InvalidOption


class CacheFull(ForerunError):
    """The pool has fewer free pages than a request needs now."""


class PagePool:
    """A fixed number of pages of `page_size` rows each, handed out and taken back.

    A page may have several holders: `take` makes the first, `share` adds one, and `release`
    removes one; with the last the page is free again.
    """

    def __init__(self, num_pages: int, page_size: int) -> None:
        if num_pages < 1 or page_size < 1:
            raise InvalidOption(
                f"a cache of {num_pages} pages of {page_size} rows holds nothing; give 1 or more."
            )
        self.page_size = page_size
        self._num_holders = [0] * num_pages
        self._free = list(range(num_pages - 1, -1, -1))  # a stack: the last freed is warm in cache

    @property
    def num_pages(self) -> int:
        return len(self._num_holders)

    @property
    def num_free(self) -> int:
        return len(self._free)

    def num_holders(self, page: int) -> int:
        return self._num_holders[page]

    def pages_for(self, num_rows: int) -> int:
        """How many pages hold `num_rows` rows."""
        return -(-num_rows // self.page_size)

    def take(self, num_pages: int) -> list[int]:
        """All the pages asked for, or `CacheFull` and nothing taken."""
        assert num_pages >= 0, num_pages
        if num_pages > self.num_free:
            raise CacheFull(
                f"the cache needs {num_pages} more pages and {self.num_free} of {self.num_pages} "
                f"are free; finish other requests or give it more memory."
            )
        pages = [self._free.pop() for _ in range(num_pages)]
        for page in pages:
            self._num_holders[page] = 1
        return pages

    def share(self, pages: Sequence[int]) -> None:
        for page in pages:
            assert self._num_holders[page] > 0, f"page {page} is free and cannot be shared"
            self._num_holders[page] += 1

    def release(self, pages: Sequence[int]) -> None:
        for page in pages:
            assert self._num_holders[page] > 0, f"page {page} is already free"
            self._num_holders[page] -= 1
            if not self._num_holders[page]:
                self._free.append(page)
