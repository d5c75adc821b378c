"""Which request holds which rows of the key/value cache."""

from forerun.cache.block_table import BlockTable, RowMover, next_slots
from forerun.cache.cache_size import CacheSize
from forerun.cache.kv_cache import KVCache
from forerun.cache.page_pool import CacheFull, PagePool
from forerun.cache.prefix_tree import Match, PrefixTree
from forerun.cache.shared_prefixes import SharedPrefixes

__all__ = [
    "BlockTable",
    "CacheFull",
    "CacheSize",
    "KVCache",
    "Match",
    "PagePool",
    "PrefixTree",
    "RowMover",
    "SharedPrefixes",
    "next_slots",
]
