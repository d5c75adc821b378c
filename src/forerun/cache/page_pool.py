"""Which pages of a cache are free: integers only, no arrays."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

from forerun.errors import ForerunError, InvalidOption


class CacheFull(ForerunError):
    """The pool has fewer free pages than a request needs now."""


class PagePool:
    """A fixed number of pages of `page_size` rows each, handed out and taken back.

    A page may have several holders: `take` makes the first, `share` adds one, and `release` removes
    one; without a holder the page is free. A stored page (the prefix tree knows its rows) keeps its
    rows when it becomes free, and can be shared until it is taken for other rows:

        blank ──take──▶ held ──store──▶ held, stored ──release──▶ free, stored ──share──▶ held …
          ▲               │                                             │
          └───release─────┘          forgotten, when no blank is left ──┴──take──▶ held

    So `num_free` counts all pages that can be taken, and a full prefix tree is never a leak.
    """

    def __init__(self, num_pages: int, page_size: int) -> None:
        if num_pages < 1 or page_size < 1:
            raise InvalidOption(
                f"a cache of {num_pages} pages of {page_size} rows holds nothing; give 1 or more."
            )
        self.page_size = page_size
        self.on_forget: Callable[[int], None] = self.forget  # called when a stored page is needed
        self._num_holders = [0] * num_pages
        self._stored: set[int] = set()
        self._blank = list(range(num_pages - 1, -1, -1))  # a stack: the last freed is in caches
        self._idle: OrderedDict[int, None] = OrderedDict()  # free and stored, oldest release first

    @property
    def num_pages(self) -> int:
        return len(self._num_holders)

    @property
    def num_free(self) -> int:
        """Pages without a holder, stored or blank."""
        return len(self._blank) + len(self._idle)

    @property
    def num_stored(self) -> int:
        return len(self._stored)

    def num_holders(self, page: int) -> int:
        return self._num_holders[page]

    def is_private(self, page: int) -> bool:
        """Whether a page has one holder, and is not stored, so that the holder may write to it."""
        return self._num_holders[page] == 1 and page not in self._stored

    def pages_for(self, num_rows: int) -> int:
        """How many pages hold `num_rows` rows."""
        return -(-num_rows // self.page_size)

    def take(self, num_pages: int) -> list[int]:
        """Take `num_pages` pages, blank ones first; raise `CacheFull` and take none if too few."""
        assert num_pages >= 0, num_pages
        if num_pages > self.num_free:
            raise CacheFull(
                f"the cache needs {num_pages} more pages and {self.num_free} of {self.num_pages} "
                f"are free; finish other requests or give it more memory."
            )
        pages = [self._take_one() for _ in range(num_pages)]
        for page in pages:
            self._num_holders[page] = 1
        return pages

    def _take_one(self) -> int:
        if not self._blank:
            self.on_forget(next(iter(self._idle)))  # the one released longest ago becomes blank
        return self._blank.pop()

    def share(self, pages: Sequence[int]) -> None:
        for page in pages:
            is_idle = page in self._idle
            assert is_idle or self._num_holders[page] > 0, (
                f"page {page} is free and cannot be shared"
            )
            if is_idle:
                del self._idle[page]
            self._num_holders[page] += 1

    def release(self, pages: Sequence[int]) -> None:
        """Remove one holder of each page. Give a request's last pages first: they are forgotten
        first, and are of no use without the pages before them."""
        for page in pages:
            assert self._num_holders[page] > 0, f"page {page} is already free"
            self._num_holders[page] -= 1
            if self._num_holders[page]:
                continue
            if page in self._stored:
                self._idle[page] = None
            else:
                self._blank.append(page)

    def store(self, page: int) -> None:
        """Mark a page as known to the prefix tree; it is not written to any more."""
        assert self._num_holders[page] > 0, f"page {page} is free and holds nothing to store"
        self._stored.add(page)

    def forget(self, page: int) -> None:
        """Undo `store`; a page without a holder becomes blank."""
        self._stored.remove(page)
        if page in self._idle:
            del self._idle[page]
            self._blank.append(page)
