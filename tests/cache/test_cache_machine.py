"""Any sequence of operations: no page leaks, none is freed twice, no row is lost or mixed up."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from forerun.cache import BlockTable, CacheFull, PagePool
from tests.cache.rows import RowLog

NUM_PAGES: Final = 9


class CacheMachine(RuleBasedStateMachine):
    """Several requests on one pool, beside a model that is a list of values per request."""

    @initialize(page_size=st.integers(1, 5), num_requests=st.integers(1, 4))
    def open(self, page_size: int, num_requests: int) -> None:
        self.pool = PagePool(NUM_PAGES, page_size)
        self.log = RowLog(NUM_PAGES * page_size)
        self.tables = [BlockTable(self.pool, self.log) for _ in range(num_requests)]
        self.expected: list[list[object]] = [[] for _ in self.tables]
        self.shared: list[int] = []  # pages that someone else holds too, as a prefix tree would
        self.num_written = 0

    @rule(data=st.data(), num_tokens=st.integers(0, 12))
    def reserve(self, data: st.DataObject, num_tokens: int) -> None:
        idx = data.draw(st.integers(0, len(self.tables) - 1))
        table = self.tables[idx]
        before = (table.length, table.pages, self.pool.num_free)
        num_missing = self.pool.pages_for(table.length + num_tokens) - len(table.pages)
        if num_missing > self.pool.num_free:
            with pytest.raises(CacheFull):
                table.reserve(num_tokens)
            assert (table.length, table.pages, self.pool.num_free) == before
            return
        start = table.reserve(num_tokens)
        values: list[object] = [self.num_written + n for n in range(num_tokens)]
        self.num_written += num_tokens
        self.log.write(table, start, values)
        self.expected[idx] += values

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        idx = data.draw(st.integers(0, len(self.tables) - 1))
        length = data.draw(st.integers(0, self.tables[idx].length))
        self.tables[idx].truncate_to(length)
        del self.expected[idx][length:]

    @rule(data=st.data())
    def keep(self, data: st.DataObject) -> None:
        idx = data.draw(st.integers(0, len(self.tables) - 1))
        table, expected = self.tables[idx], self.expected[idx]
        start = data.draw(st.integers(0, table.length))
        offsets = st.sets(st.integers(0, max(0, table.length - start - 1)))
        path = sorted(data.draw(offsets)) if start < table.length else []
        table.keep(start, path)
        self.expected[idx] = expected[:start] + [expected[start + offset] for offset in path]

    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        idx = data.draw(st.integers(0, len(self.tables) - 1))
        self.tables[idx].free()
        self.expected[idx] = []

    @rule(data=st.data())
    def share(self, data: st.DataObject) -> None:
        idx = data.draw(st.integers(0, len(self.tables) - 1))
        pages = list(self.tables[idx].pages)
        self.pool.share(pages)
        self.shared += pages

    @rule()
    def unshare(self) -> None:
        self.pool.release(self.shared)
        self.shared = []

    @invariant()
    def every_row_is_where_its_request_finds_it(self) -> None:
        for table, expected in zip(self.tables, self.expected, strict=True):
            assert self.log.read(table) == expected
            assert len(table.pages) == self.pool.pages_for(table.length)

    @invariant()
    def every_page_is_free_or_held_as_often_as_counted(self) -> None:
        held = [page for table in self.tables for page in table.pages]
        assert len(set(held)) == len(held)
        for page in range(NUM_PAGES):
            assert self.pool.num_holders(page) == (held + self.shared).count(page)
        assert self.pool.num_free == NUM_PAGES - len({*held, *self.shared})

    def teardown(self) -> None:
        for table in self.tables:
            table.free()
        self.unshare()
        assert self.pool.num_free == NUM_PAGES


TestCache = CacheMachine.TestCase
TestCache.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, derandomize=True
)
