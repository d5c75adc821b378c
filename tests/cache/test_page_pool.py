"""Pages are handed out once, refused when short, and given back once."""

from __future__ import annotations

import pytest

from forerun.cache import CacheFull, PagePool
from forerun.errors import InvalidOption


def test_pages_are_distinct_until_released() -> None:
    pool = PagePool(num_pages=4, page_size=8)
    pages = pool.take(3) + pool.take(1)
    assert sorted(pages) == [0, 1, 2, 3]
    pool.release(pages[:2])
    assert pool.num_free == 2
    assert sorted(pool.take(2)) == sorted(pages[:2])


def test_a_full_pool_refuses_and_takes_nothing() -> None:
    pool = PagePool(num_pages=4, page_size=8)
    pool.take(2)
    with pytest.raises(CacheFull, match="3 more pages and 2 of 4 are free"):
        pool.take(3)
    assert pool.num_free == 2


def test_a_shared_page_is_free_only_after_its_last_holder() -> None:
    pool = PagePool(num_pages=2, page_size=8)
    pages = pool.take(1)
    pool.share(pages)
    pool.release(pages)
    assert pool.num_free == 1
    assert pool.num_holders(pages[0]) == 1
    pool.release(pages)
    assert pool.num_free == 2


def test_a_page_cannot_be_released_twice_or_shared_when_free() -> None:
    pool = PagePool(num_pages=2, page_size=8)
    pages = pool.take(1)
    pool.release(pages)
    with pytest.raises(AssertionError, match="already free"):
        pool.release(pages)
    with pytest.raises(AssertionError, match="cannot be shared"):
        pool.share(pages)


@pytest.mark.parametrize(("num_rows", "num_pages"), [(0, 0), (1, 1), (8, 1), (9, 2), (16, 2)])
def test_pages_for_rounds_up(num_rows: int, num_pages: int) -> None:
    assert PagePool(num_pages=2, page_size=8).pages_for(num_rows) == num_pages


@pytest.mark.parametrize(("num_pages", "page_size"), [(0, 8), (8, 0), (-1, 1)])
def test_a_pool_of_nothing_is_refused(num_pages: int, page_size: int) -> None:
    with pytest.raises(InvalidOption, match="holds nothing"):
        PagePool(num_pages, page_size)
