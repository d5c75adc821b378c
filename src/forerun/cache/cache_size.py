"""The number of pages that fit into the given memory, and their size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from forerun.errors import InvalidOption
from forerun.option_checks import require_known

BACKENDS: Final = ("paged", "slotted")
PAGE_SIZE: Final = 16  # rows: small enough to waste little, large enough to keep tables short


@dataclass(frozen=True)
class CacheSize:
    """A cache of `num_pages` pages of `page_size` rows each."""

    num_pages: int
    page_size: int

    @property
    def num_rows(self) -> int:
        return self.num_pages * self.page_size

    @classmethod
    def for_requests(cls, num_requests: int, row_len: int, backend: str = "paged") -> CacheSize:
        """The size with room for `num_requests` requests of `row_len` rows each."""
        page_size = page_size_of(backend, row_len)
        return cls(num_requests * -(-row_len // page_size), page_size)

    @classmethod
    def within(
        cls, num_bytes: int, row_bytes: Sequence[int], row_len: int, backend: str = "paged"
    ) -> CacheSize:
        """The largest size that fits into `num_bytes`.

        `row_bytes` has one entry for each model whose cache comes out of this memory. Target and
        draft caches get the same number of rows, so that neither waits for the other. If not even
        one slot of `row_len` rows fits, there is one slot, as long as the memory allows.
        """
        num_rows = max(1, num_bytes // sum(row_bytes))
        page_size = page_size_of(backend, min(row_len, num_rows))
        page_bytes = page_size * sum(row_bytes)
        if num_bytes < page_bytes:
            raise InvalidOption(
                f"a KV cache of {num_bytes} bytes holds nothing, as one page takes {page_bytes}; "
                f"give it more memory."
            )
        return cls(num_bytes // page_bytes, page_size)


def page_size_of(backend: str, row_len: int) -> int:
    """Return the rows of one page; `row_len` is the most that a request needs, with guesses."""
    require_known("kv_cache_backend", BACKENDS, backend)
    return PAGE_SIZE if backend == "paged" else row_len
