"""How much memory the caches of an engine may take together."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from forerun.cache.cache_size import BACKENDS, CacheSize
from forerun.errors import InvalidOption
from forerun.option_checks import is_whole, require_known

_UNITS: Final = {
    "": 1, "B": 1,
    "K": 10**3, "M": 10**6, "G": 10**9,
    "KB": 10**3, "MB": 10**6, "GB": 10**9,
    "KIB": 2**10, "MIB": 2**20, "GIB": 2**30,
}  # fmt: skip
_MOST_BYTES: Final = 2**62  # more than any processor can address


@dataclass(frozen=True)
class CacheMemory:
    """What the target's cache and those of draft models may take together.

    Without `num_bytes` that is room for `max_num_seqs` texts, or what a device has free if less.
    """

    max_num_seqs: int
    backend: str = "paged"
    num_bytes: int | None = None

    def __post_init__(self) -> None:
        require_known("kv_cache_backend", BACKENDS, self.backend)

    def size(
        self, row_len: int, row_bytes: Sequence[int], free_bytes: int | None = None
    ) -> CacheSize:
        """Return the size of each cache.

        `row_bytes` has the bytes per row of every cache, `row_len` is the most rows that a request
        may need, and `free_bytes` what a device has left for all caches.
        """
        if self.num_bytes is not None:
            if free_bytes is not None and self.num_bytes > free_bytes:
                raise InvalidOption(
                    f"kv_cache_memory is {self.num_bytes} bytes, and the device has {free_bytes} "
                    f"for it beside the weights and what passes need; lower it."
                )
            return CacheSize.within(self.num_bytes, row_bytes, row_len, self.backend)
        size = CacheSize.for_requests(self.max_num_seqs, row_len, self.backend)
        if free_bytes is not None and size.num_rows * sum(row_bytes) > free_bytes:
            return CacheSize.within(free_bytes, row_bytes, row_len, self.backend)
        return size


def parse_bytes(given: int | str | None, name: str) -> int | None:
    """Read a number of bytes such as 512000000, "512MB" or "0.5 GiB"; KB is 1000, KiB 1024."""
    if given is None:
        return None
    if is_whole(given) and 0 < int(given) <= _MOST_BYTES:
        return int(given)
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMG]?I?B?)\s*", str(given).upper())
    unit = None if found is None or not isinstance(given, str) else _UNITS.get(found[2])
    num_bytes = 0.0 if found is None or unit is None else float(found[1]) * unit
    if not 1 <= num_bytes <= _MOST_BYTES:
        raise InvalidOption(f'{name}={given!r} is not allowed; give bytes, like "512MB".')
    return int(num_bytes)
