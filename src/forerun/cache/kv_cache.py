"""The KV cache of one model: its pages, and the rows in them."""

from __future__ import annotations

from forerun.cache.block_table import BlockTable
from forerun.cache.page_pool import PagePool
from forerun.cache.shared_prefixes import SharedPrefixes
from forerun.kernels import AttentionShape, Kernels
from forerun.kernels.base import Store
from forerun.types import IntArray


class KVCache:
    """One model's K and V rows for all requests. The kernel set owns the rows; they are opaque."""

    def __init__(
        self,
        kernels: Kernels,
        shape: AttentionShape,
        num_layers: int,
        num_pages: int,
        page_size: int,
    ) -> None:
        self._kernels = kernels
        # Rows first: if there is no memory for them, the list of pages could take what is left.
        self.store: Store = kernels.new_store(shape, num_layers, num_pages * page_size)
        self.pool = PagePool(num_pages, page_size)
        self.prefixes = SharedPrefixes(self.pool)

    def new_table(self) -> BlockTable:
        return BlockTable(self.pool, self)

    def move_rows(self, sources: IntArray, targets: IntArray) -> None:
        self._kernels.move_rows(self.store, sources, targets)
