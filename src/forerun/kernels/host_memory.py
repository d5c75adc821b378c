"""What this machine can hold."""

from __future__ import annotations

import math
import os


def require_memory(num_bytes: int) -> None:
    """`MemoryError` where they are more than there is: some systems would promise them, and kill
    who takes them."""
    if num_bytes > _physical_memory():
        raise MemoryError(f"{num_bytes} bytes of rows are more than this machine has")


def _physical_memory() -> float:
    if not hasattr(os, "sysconf"):  # Windows, which promises no more than it has
        return math.inf
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
