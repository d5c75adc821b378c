"""Which request holds which rows of the key/value cache."""

from forerun.cache.block_table import BlockTable, RowMover
from forerun.cache.kv_cache import KVCache
from forerun.cache.page_pool import CacheFull, PagePool

__all__ = ["BlockTable", "CacheFull", "KVCache", "PagePool", "RowMover"]
