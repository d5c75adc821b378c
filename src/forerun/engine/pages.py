"""How large a cache to make."""

from __future__ import annotations

from typing import Final

PAGE_SIZE: Final = 16  # rows: small enough to waste little, large enough to keep tables short


def pages_for(row_len: int, num_rows: int) -> tuple[int, int]:
    """(pages, page size) for `num_rows` requests of up to `row_len` tokens each."""
    return -(-row_len // PAGE_SIZE) * num_rows, PAGE_SIZE
