"""The limit of this machine's memory."""

from __future__ import annotations

import math
import os


def require_memory(num_bytes: int) -> None:
    """Raise `MemoryError` if `num_bytes` exceed the physical memory: some systems grant such an
    allocation, and kill the process once it writes to the memory."""
    if num_bytes > _physical_memory():
        raise MemoryError(f"{num_bytes} bytes of rows are more than this machine has")


def _physical_memory() -> float:
    if not hasattr(os, "sysconf"):  # Windows, which does not overcommit memory
        return math.inf
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
