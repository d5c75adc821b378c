"""Rows that were computed once are found again: the true ones, and only by the same caller."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from forerun.cache import BlockTable, CacheFull, PagePool, SharedPrefixes
from tests.cache.rows import RowLog

LONG = tuple(range(1000))


class Cache:
    """A pool, its rows and its prefixes; a row's value is all tokens up to it."""

    def __init__(self, num_pages: int, page_size: int) -> None:
        self.pool = PagePool(num_pages, page_size)
        self.log = RowLog(num_pages * page_size)
        self.prefixes = SharedPrefixes(self.pool)

    def table(self) -> BlockTable:
        return BlockTable(self.pool, self.log)

    def run(self, tokens: Sequence[int], salt: str | None = None) -> tuple[BlockTable, int]:
        """Compute what is not shared; return the table and how many tokens were computed."""
        table = self.table()
        num_found = self.prefixes.attach(table, tokens, salt)
        num_computed = len(tokens) - num_found
        start = table.reserve(num_computed)
        values: list[object] = [tuple(tokens[: end + 1]) for end in range(start, len(tokens))]
        self.log.write(table, start, values)
        self.prefixes.publish(table, tokens, salt)
        assert self.log.read(table) == [tuple(tokens[: end + 1]) for end in range(len(tokens))]
        return table, num_computed

    def run_and_end(self, tokens: Sequence[int], salt: str | None = None) -> int:
        table, num_computed = self.run(tokens, salt)
        self.prefixes.retire(table, tokens, salt)
        return num_computed


@pytest.mark.parametrize("page_size", [1, 16, 64, 2048])
@pytest.mark.parametrize("more", [(), (5,), tuple(range(30))])
def test_a_long_prefix_is_computed_once(page_size: int, more: tuple[int, ...]) -> None:
    """Also with pages as long as a whole text, where the beginning of a page is shared."""
    cache = Cache(4 * 2048 // page_size, page_size)
    assert cache.run_and_end(LONG + more) == 1000 + len(more)
    assert cache.run_and_end((*LONG, 7, 7, *more)) <= 2 + len(more) < 32 + len(more)


def test_a_running_request_shares_its_full_pages() -> None:
    cache = Cache(200, 16)
    first, _ = cache.run(LONG)
    second, num_computed = cache.run((*LONG, 3))
    assert num_computed == 1 + 1000 % 16
    assert first.pages[:62] == second.pages[:62]
    assert cache.pool.num_free == 200 - 64


@pytest.mark.parametrize("num_tokens", [1, 2, 15, 16, 17, 32, 33])
def test_the_last_token_is_left_to_compute(num_tokens: int) -> None:
    cache = Cache(8, 16)
    cache.run_and_end(range(num_tokens))
    assert cache.run_and_end(range(num_tokens)) == 1
    assert cache.run_and_end(range(num_tokens)) == 1


def test_callers_with_other_salts_find_nothing() -> None:
    cache = Cache(16, 4)
    cache.run_and_end(range(9), salt="a")
    assert cache.run_and_end(range(9), salt="b") == 9
    assert cache.run_and_end(range(9)) == 9
    assert cache.run_and_end(range(9), salt="a") == 1


def test_the_same_prompt_computed_twice_is_held_once() -> None:
    cache = Cache(8, 4)
    twin = cache.table()
    cache.log.write(twin, twin.reserve(8), [tuple(range(end + 1)) for end in range(8)])
    first, _ = cache.run(range(8))
    cache.prefixes.publish(twin, range(8))
    assert twin.pages == first.pages
    assert cache.pool.num_free == 6


def test_pages_in_use_are_never_forgotten() -> None:
    cache = Cache(4, 4)
    held, _ = cache.run(range(8))
    with pytest.raises(CacheFull):
        cache.table().reserve(9)
    cache.table().reserve(8)
    assert cache.prefixes.tree.match(range(8), None).pages == held.pages


def test_the_least_recently_used_leaf_is_forgotten_first() -> None:
    cache = Cache(6, 2)
    for name in (10, 20, 30):
        cache.run_and_end([name, name, name + 1, name + 1])
    cache.run_and_end([10, 10, 11, 11])  # used again
    cache.table().reserve(2)  # one page: the end of 20's
    assert len(cache.prefixes.tree) == 5
    found = {
        name: cache.prefixes.tree.match([name, name, name + 1, name + 1], None).pages
        for name in (10, 20, 30)
    }
    assert {name: len(pages) for name, pages in found.items()} == {10: 2, 20: 1, 30: 2}


def test_a_beginning_outlives_its_continuations() -> None:
    cache = Cache(8, 2)
    for last in range(3):
        cache.run_and_end([1, 1, last + 5, last + 5])
    cache.table().reserve(2 * 7)
    assert len(cache.prefixes.tree) == 1
    assert len(cache.prefixes.tree.match([1, 1, 5, 5], None).pages) == 1


def test_rows_of_a_pass_that_failed_are_never_found() -> None:
    """The prompt's second chunk was reserved, but its pass did not return."""
    cache = Cache(8, 4)
    tokens = tuple(range(12))
    table = cache.table()
    cache.log.write(table, table.reserve(4), [tokens[: end + 1] for end in range(4)])
    cache.prefixes.publish(table, tokens)
    table.reserve(8)
    cache.prefixes.retire(table, tokens)
    assert cache.pool.num_free == 8
    assert len(cache.prefixes.tree.match(tokens, None).pages) == 1


def test_guesses_cannot_be_published() -> None:
    cache = Cache(8, 4)
    table, _ = cache.run(range(5))
    table.reserve(3)
    with pytest.raises(AssertionError):
        cache.prefixes.publish(table, range(6))


def test_a_forked_request_writes_to_its_own_copy() -> None:
    cache = Cache(8, 4)
    one, _ = cache.run(range(6))
    other = one.fork()
    assert cache.pool.num_free == 6
    assert (one.num_missing(7), other.num_missing(9)) == (1, 2)
    cache.log.write(one, one.reserve(1), ["one"])
    cache.log.write(other, other.reserve(1), ["other"])
    assert (cache.log.read(one)[-1], cache.log.read(other)[-1]) == ("one", "other")
    assert cache.log.read(one)[:6] == cache.log.read(other)[:6]
    assert one.pages[0] == other.pages[0]
    assert one.pages[1] != other.pages[1]


def test_a_tree_kept_over_shared_rows_leaves_them_alone() -> None:
    cache = Cache(8, 4)
    one, _ = cache.run(range(8))
    other = one.fork()
    other.keep(2, (1, 5))
    assert cache.log.read(one) == [tuple(range(end + 1)) for end in range(8)]
    assert cache.log.read(other) == [cache.log.read(one)[idx] for idx in (0, 1, 3, 7)]


def test_the_only_row_of_a_slotted_cache_is_continued_in_place() -> None:
    cache = Cache(1, 64)
    cache.run_and_end(range(20))
    assert cache.prefixes.num_missing((*range(20), 9), None, 21) == 1
    assert cache.run_and_end((*range(20), 9)) == 1
    assert cache.run_and_end((*range(20), 9, 9)) == 1


def test_a_shorter_text_adds_nothing_to_a_longer_one() -> None:
    cache = Cache(8, 8)
    cache.run_and_end(range(6))
    cache.run_and_end(range(4))
    assert len(cache.prefixes.tree) == 1
    cache.run_and_end(range(8))
    assert len(cache.prefixes.tree) == 1


def test_a_chain_as_deep_as_a_long_context_is_forgotten_at_once() -> None:
    cache = Cache(5000, 1)
    table = cache.table()
    table.reserve(5000)
    cache.prefixes.publish(table, range(5000))
    cache.prefixes.retire(table, range(5000))
    first = cache.prefixes.tree.match([0], None).pages[0]
    cache.prefixes.tree.drop(first)
    assert (len(cache.prefixes.tree), cache.pool.num_stored, cache.pool.num_free) == (0, 0, 5000)


def test_a_copied_beginning_leaves_the_original_known() -> None:
    cache = Cache(3, 32)
    cache.run_and_end(range(20))
    _, num_computed = cache.run((*range(10), 99))
    assert num_computed == 1
    assert cache.run_and_end(range(20)) == 1


def test_a_page_that_is_known_in_part_becomes_known_as_a_whole() -> None:
    """The origin leaves three rows of a page behind; then its fork publishes all four."""
    cache = Cache(8, 4)
    one = cache.table()
    cache.log.write(one, one.reserve(4), [tuple(range(end + 1)) for end in range(4)])
    other = one.fork()
    one.truncate_to(3)
    cache.prefixes.publish(one, range(3))
    cache.prefixes.retire(one, range(3))
    cache.log.write(other, other.reserve(4), [tuple(range(end + 1)) for end in range(4, 8)])
    cache.prefixes.publish(other, range(8))
    assert cache.prefixes.tree.match(range(8), None).pages == other.pages
