"""The target's cache as the scheduler's `Pool`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from forerun.cache import BlockTable, KVCache


class CachedRequest(Protocol):
    """The parts of a request that its cache needs."""

    @property
    def table(self) -> BlockTable: ...

    @property
    def tokens(self) -> Sequence[int]: ...

    @property
    def cache_salt(self) -> str | None: ...


class TargetPool:
    """The target's cache as a `Pool`: requests of the same salt share prefixes."""

    def __init__(self, cache: KVCache, requests: Mapping[int, CachedRequest]) -> None:
        self._pool = cache.pool
        self._prefixes = cache.prefixes
        self._requests = requests

    @property
    def num_pages(self) -> int:
        return self._pool.num_pages

    @property
    def num_free(self) -> int:
        return self._pool.num_free

    def pages_for(self, num_rows: int) -> int:
        return self._pool.pages_for(num_rows)

    def num_missing(self, request_id: int, num_rows: int) -> int:
        request = self._requests[request_id]
        if request.table.length:
            return request.table.num_missing(num_rows)
        return self._prefixes.num_missing(request.tokens, request.cache_salt, num_rows)

    def attach(self, request_id: int) -> None:
        request = self._requests[request_id]
        self._prefixes.attach(request.table, request.tokens, request.cache_salt)

    def release(self, request_id: int) -> None:
        request = self._requests[request_id]
        self._prefixes.retire(request.table, request.tokens, request.cache_salt)
