"""A request's rows: reserved, cut back, and moved together after a tree."""

from __future__ import annotations

import numpy as np
import pytest

from forerun.cache import BlockTable, CacheFull, KVCache, next_slots
from forerun.kernels import AttentionShape, Plan, ReferenceKernels
from forerun.types import Span, Tree
from tests.cache.rows import new_table
from tests.kernels.sources import normal


def test_reserve_takes_pages_only_when_the_last_is_full() -> None:
    pool, _, table = new_table(page_size=4)
    assert [table.reserve(n) for n in (3, 1, 1)] == [0, 3, 4]
    assert (table.length, len(table.pages), pool.num_free) == (5, 2, 2)


def test_a_refused_reserve_changes_nothing() -> None:
    pool, _, table = new_table(num_pages=4, page_size=4)
    table.reserve(6)
    with pytest.raises(CacheFull):
        table.reserve(11)
    assert (table.length, len(table.pages), pool.num_free) == (6, 2, 2)
    table.reserve(10)


@pytest.mark.parametrize(("length", "num_pages"), [(0, 0), (1, 1), (4, 1), (5, 2), (8, 2), (10, 3)])
def test_truncate_frees_whole_pages_past_the_end_and_nothing_else(
    length: int, num_pages: int
) -> None:
    pool, log, table = new_table(num_pages=4, page_size=4)
    log.write(table, table.reserve(10), list("abcdefghij"))
    pages = table.pages
    table.truncate_to(length)
    assert (table.length, table.pages) == (length, pages[:num_pages])
    assert pool.num_free == 4 - num_pages
    assert log.read(table) == list("abcdefghij")[:length]


def test_truncate_never_lengthens() -> None:
    _, _, table = new_table()
    table.reserve(3)
    with pytest.raises(AssertionError):
        table.truncate_to(4)


@pytest.mark.parametrize(
    ("path", "kept"),
    [((), "ab"), ((0,), "abc"), ((0, 1, 2), "abcde"), ((0, 2, 5), "abceh"), ((1, 2, 3), "abdef")],
)
def test_keep_gathers_the_path_behind_the_committed_rows(path: tuple[int, ...], kept: str) -> None:
    """Rows 'ab' are committed, 'cdefgh' is the span; overlapping moves keep their order."""
    pool, log, table = new_table(page_size=3)
    log.write(table, table.reserve(2), list("ab"))
    log.write(table, table.reserve(6), list("cdefgh"))
    table.keep(2, path)
    assert "".join(map(str, log.read(table))) == kept
    assert pool.num_free == 4 - pool.pages_for(len(kept))


@pytest.mark.parametrize(
    ("start", "path", "num_sealed"), [(5, (0, 2, 5), 5), (5, (1, 2), 5), (3, (0, 2, 3), 4)]
)
def test_what_was_sealed_stays_so_up_to_the_first_row_that_moved(
    start: int, path: tuple[int, ...], num_sealed: int
) -> None:
    _, _, table = new_table()
    table.reserve(5)
    table.seal()
    table.reserve(6)
    table.keep(start, path)
    assert table.num_sealed == num_sealed


def test_an_accepted_chain_moves_no_row() -> None:
    _, log, table = new_table()
    log.write(table, table.reserve(6), list("abcdef"))
    table.keep(1, (0, 1, 2))
    assert log.num_moved == 0
    assert table.length == 4


@pytest.mark.parametrize("path", [(1, 0), (0, 0), (-1,), (0, 6)])
def test_a_path_that_is_not_one_is_refused(path: tuple[int, ...]) -> None:
    _, _, table = new_table()
    table.reserve(6)
    with pytest.raises(AssertionError):
        table.keep(0, path)


def test_a_new_table_holds_nothing() -> None:
    _, _, table = new_table()
    assert (table.length, table.num_sealed, table.pages) == (0, 0, ())


@pytest.mark.parametrize("page_size", [1, 4])
@pytest.mark.parametrize("length", [0, 1, 4, 5, 6, 8])
def test_the_last_page_alone_is_copied_and_of_it_the_rows_in_use(
    length: int, page_size: int
) -> None:
    pool, log, table = new_table(num_pages=16, page_size=page_size)
    rows: list[object] = [*"abcdefgh"[:length]]
    log.write(table, table.reserve(length), rows)
    twin = table.fork()
    table.unshare_tail()
    assert table.pages[:-1] == twin.pages[:-1]
    assert (table.pages == twin.pages) is (length == 0)
    assert log.num_moved == length - max(0, (length - 1) // page_size * page_size)
    assert log.read(table) == log.read(twin) == rows
    assert pool.num_free == 16 - len(twin.pages) - (length > 0)


def test_rows_that_are_there_need_no_page() -> None:
    """Not even where the last page is shared: only a new row would need a copy."""
    _, _, table = new_table(page_size=4)
    table.reserve(6)
    table.fork()
    assert [table.num_missing(length) for length in (0, 5, 6, 7, 8, 9)] == [0, 0, 0, 1, 1, 2]


def test_rows_of_others_come_first_and_whole() -> None:
    pool, log, table = new_table(page_size=4)
    table.reserve(5)
    other = type(table)(pool, log)
    with pytest.raises(AssertionError):
        other.adopt(table.pages, 9)
    with pytest.raises(AssertionError):
        other.adopt(table.pages, 4)
    other.adopt(table.pages, 5)
    with pytest.raises(AssertionError):
        other.adopt(table.pages, 5)


def test_fewer_than_no_rows_are_refused() -> None:
    _, _, table = new_table()
    with pytest.raises(AssertionError):
        table.reserve(-1)
    assert table.reserve(0) == 0
    with pytest.raises(AssertionError):
        table.truncate_to(-1)


def test_a_fork_is_sealed_as_far_as_what_it_was_forked_from() -> None:
    """Rows of a pass in flight are not sealed, so they are shared by neither table nor fork."""
    _, log, table = new_table()
    log.write(table, table.reserve(5), list("abcde"))
    table.seal()
    log.write(table, table.reserve(3), list("fgh"))
    twin = table.fork()
    assert (twin.length, twin.num_sealed, twin.pages) == (8, 5, table.pages)
    assert log.read(twin) == list("abcdefgh")
    table.seal()
    assert (table.num_sealed, twin.num_sealed) == (8, 5)


def test_free_gives_back_every_page() -> None:
    pool, _, table = new_table()
    table.reserve(13)
    table.free()
    assert (table.length, table.pages, pool.num_free) == (0, (), 4)
    table.free()  # a second time there is nothing to give
    assert pool.num_free == 4


def test_slots_follow_the_pages() -> None:
    pool, log, table = new_table(num_pages=4, page_size=2)
    other = type(table)(pool, log)
    for _ in range(3):
        table.reserve(1)
        other.reserve(1)
    expected = [page * 2 + lane for page in table.pages for lane in range(2)][:3]
    assert table.slots(3).tolist() == expected
    assert not set(table.slots(3).tolist()) & set(other.slots(3).tolist())
    with pytest.raises(AssertionError):
        table.slots(4)


def test_kv_cache_moves_the_rows_of_all_layers_of_its_kernel_set() -> None:
    shape = AttentionShape(1, 1, 2)
    cache = KVCache(ReferenceKernels(), shape, num_layers=2, num_pages=3, page_size=2)
    table = cache.new_table()
    span = Span(table.reserve(4), (0,) * 4, Tree.chain(4), ())
    kernels = ReferenceKernels()
    batch = kernels.begin(Plan.build([(span, table)]), shape, np.zeros(1))
    for layer in range(2):
        kernels.rope_write(normal(layer, 4, 6), batch, cache.store, layer)
    before = cache.store.k.copy(), cache.store.v.copy()
    slots = table.slots(4)
    table.keep(0, (1, 3))
    for rows, old in zip((cache.store.k, cache.store.v), before, strict=True):
        np.testing.assert_array_equal(rows[:, slots[:2]], old[:, slots[[1, 3]]])


def test_the_page_of_the_next_row_is_held_until_it_is_used_or_cut_off() -> None:
    pool, _, table = new_table(num_pages=3, page_size=2)
    table.reserve(1)
    assert next_rows(table, 1) == [table.pages[0] * 2 + 1]
    assert pool.num_free == 2
    table.reserve(1)
    slot, behind = next_rows(table, 1)
    assert [slot, behind] == next_rows(table, 1) == [table.pages[1] * 2, table.pages[1] * 2 + 1]
    assert pool.num_free == 1
    table.keep(1, (0,))  # all that was reserved stays, and so does the page
    table.reserve(1)
    assert table.slots(3)[-1] == slot
    assert pool.num_free == 1
    table.reserve(1)
    table.next_slots(1)
    table.keep(3, ())
    assert (table.length, pool.num_free) == (3, 1)


def test_without_a_page_there_is_no_next_slot() -> None:
    _, _, table = new_table(num_pages=1, page_size=2)
    table.reserve(2)
    assert table.next_slots(1) is None
    assert next_slots([(table, 1)]) is None
    assert next_slots([None]) == (None,)
    table.truncate_to(1)
    found = next_slots([None, (table, 1)])
    assert found is not None
    assert found[0] is None
    assert found[1] is not None
    assert found[1].tolist() == [table.pages[0] * 2 + 1]


def test_pages_of_several_next_rows_are_used_before_others_are_taken() -> None:
    pool, _, table = new_table(num_pages=4, page_size=2)
    table.reserve(1)
    slots = next_rows(table, 4)
    assert len(slots) == 5  # all that the pages have room for
    assert pool.num_free == 1
    table.reserve(2)
    assert (table.slots(3)[1:].tolist(), pool.num_free) == (slots[:2], 1)
    table.keep(1, (0,))  # one of the two rows: the pages after it go, and come back in order
    assert pool.num_free == 3
    assert next_rows(table, 4) == slots[1:]
    assert table.next_slots(7) is None


def test_rows_of_pages_that_were_given_back_are_no_next_rows() -> None:
    _, _, table = new_table(num_pages=4, page_size=2)
    table.reserve(1)
    slots = next_rows(table, 6)
    table.keep(0, ())
    table.reserve(1)
    assert next_rows(table, 1) == slots[:1]
    assert next_rows(table, 2) == slots[:3]


def test_slots_are_those_of_the_pages_held_now_whichever_were_held_before() -> None:
    """A page is given up, another one comes in its place, and then the first one again."""
    pool, log, table = new_table(num_pages=3, page_size=2)
    other = BlockTable(pool, log)
    table.reserve(4)
    first = table.slots(4).tolist()
    table.truncate_to(2)
    other.reserve(2)
    table.reserve(2)
    assert set(table.slots(4)[2:].tolist()).isdisjoint(first)
    table.truncate_to(2)
    last = pool.take(1)
    other.free()
    table.reserve(2)
    assert table.slots(4).tolist() == first
    pool.release(last)


def next_rows(table: BlockTable, num: int) -> list[int]:
    slots = table.next_slots(num)
    assert slots is not None
    found: list[int] = slots.tolist()
    return found
