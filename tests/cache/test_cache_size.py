"""The cache is as large as its memory allows, and not a byte larger."""

from __future__ import annotations

import pytest

from forerun.cache import CacheSize, KVCache
from forerun.errors import InvalidOption
from forerun.kernels import AttentionShape, ReferenceKernels

SHAPE = AttentionShape(num_heads=6, num_kv_heads=2, head_dim=4)


def row_bytes(num_layers: int) -> int:
    return ReferenceKernels().row_bytes(SHAPE, num_layers)


def allocated(size: CacheSize, num_layers: int) -> int:
    cache = KVCache(ReferenceKernels(), SHAPE, num_layers, size.num_pages, size.page_size)
    return int(cache.store.k.nbytes + cache.store.v.nbytes)


@pytest.mark.parametrize("backend", ["paged", "slotted"])
@pytest.mark.parametrize("num_bytes", [10_000, 16_384, 99_999])
def test_the_memory_is_used_and_never_exceeded(backend: str, num_bytes: int) -> None:
    size = CacheSize.within(num_bytes, [row_bytes(3)], row_len=40, backend=backend)
    assert allocated(size, 3) <= num_bytes
    assert allocated(CacheSize(size.num_pages + 1, size.page_size), 3) > num_bytes


def test_target_and_draft_share_the_memory_row_by_row() -> None:
    rows = [row_bytes(num_layers) for num_layers in (5, 2)]
    size = CacheSize.within(200_000, rows, row_len=100)
    assert 200_000 - 16 * sum(rows) < allocated(size, 5) + allocated(size, 2) <= 200_000


@pytest.mark.parametrize(("row_len", "page_size"), [(40, 16), (7, 16)])
def test_pages_are_short_or_as_long_as_a_row(row_len: int, page_size: int) -> None:
    assert CacheSize.for_requests(3, row_len) == CacheSize(3 * -(-row_len // 16), page_size)
    assert CacheSize.for_requests(3, row_len, "slotted") == CacheSize(3, row_len)


def test_memory_for_less_than_a_page_is_refused() -> None:
    page_bytes = 16 * row_bytes(3)
    assert CacheSize.within(page_bytes, [page_bytes // 16], 40).num_pages == 1
    with pytest.raises(InvalidOption, match=f"one page takes {page_bytes}"):
        CacheSize.within(page_bytes - 1, [page_bytes // 16], 40)


def test_an_unknown_backend_is_refused() -> None:
    with pytest.raises(InvalidOption, match="did you mean 'slotted'"):
        CacheSize.for_requests(1, 8, "sloted")
