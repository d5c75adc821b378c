"""Any sequence of operations: no page leaks, none is freed twice, no row is lost or mixed up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from forerun.cache import BlockTable, CacheFull, PagePool, SharedPrefixes
from forerun.cache.prefix_tree import Node
from tests.cache.rows import RowLog

NUM_PAGES: Final = 9
SALTS: Final = (None, "a")
TOKENS: Final = st.integers(0, 1)  # few, so that prefixes meet


@dataclass
class CachedRequest:
    """A request: its table, and what it believes to be in there."""

    table: BlockTable
    salt: str | None
    tokens: list[int]  # committed, and one that is not yet computed
    extra: list[object] = field(default_factory=list)  # values of rows that are not committed

    def rows(self) -> list[object]:
        """What each row must hold: all that a true row would depend on."""
        num_committed = self.table.length - len(self.extra)
        return [*rows_of(self.salt, self.tokens)[:num_committed], *self.extra]


def rows_of(salt: str | None, tokens: list[int]) -> list[object]:
    return [(salt, *tokens[: end + 1]) for end in range(len(tokens))]


def path_of(node: Node) -> list[Node]:
    """From the first page down to this one."""
    above: list[Node] = []
    while node.parent is not None:
        above.append(node)
        node = node.parent
    return above[::-1]


class CacheMachine(RuleBasedStateMachine):
    """Requests on one pool and one prefix tree, compared with a model of every row."""

    @initialize(page_size=st.integers(1, 5))
    def open(self, page_size: int) -> None:
        self.pool = PagePool(NUM_PAGES, page_size)
        self.log = RowLog(NUM_PAGES * page_size)
        self.prefixes = SharedPrefixes(self.pool)
        self.requests: list[CachedRequest] = []
        self.num_guesses = 0

    def some(self, data: st.DataObject) -> CachedRequest:
        return data.draw(st.sampled_from(self.requests))

    @precondition(lambda self: len(self.requests) < 5)
    @rule(tokens=st.lists(TOKENS, min_size=1, max_size=14), salt=st.sampled_from(SALTS))
    def begin(self, tokens: list[int], salt: str | None) -> None:
        """Attaching needs as many free pages as announced, and leaves a token to compute."""
        request = CachedRequest(BlockTable(self.pool, self.log), salt, tokens)
        num_free = self.pool.num_free
        num_missing = self.prefixes.num_missing(tokens, salt, len(tokens))
        num_rows = self.prefixes.attach(request.table, tokens, salt)
        assert num_rows == request.table.length == request.table.num_sealed < len(tokens)
        if num_missing <= num_free:
            assert num_free - self.pool.num_free + request.table.num_missing(len(tokens)) == (
                num_missing
            )
        self.requests.append(request)

    @precondition(lambda self: self.requests)
    @rule(data=st.data(), more=st.lists(TOKENS, max_size=9), is_published=st.booleans())
    def compute(self, data: st.DataObject, more: list[int], is_published: bool) -> None:
        """Compute and commit all tokens that have no row yet, then add `more` tokens."""
        request = self.some(data)
        self._drop_extra(request)
        num_tokens = len(request.tokens) - request.table.length
        if not self._reserve(request, num_tokens):
            return
        rows = rows_of(request.salt, request.tokens)
        self.log.write(
            request.table, len(rows) - num_tokens, rows[-num_tokens:] if num_tokens else []
        )
        if is_published:
            self.prefixes.publish(request.table, request.tokens, request.salt)
        request.tokens += more

    @precondition(lambda self: self.requests)
    @rule(data=st.data(), num_nodes=st.integers(0, 8))
    def guess(self, data: st.DataObject, num_nodes: int) -> None:
        """Write rows of a pass that has no verdict yet, or that failed."""
        request = self.some(data)
        if not self._reserve(request, num_nodes):
            return
        values: list[object] = [f"guess {self.num_guesses + idx}" for idx in range(num_nodes)]
        self.num_guesses += num_nodes
        self.log.write(request.table, request.table.length - num_nodes, values)
        request.extra += values

    def _reserve(self, request: CachedRequest, num_rows: int) -> bool:
        """Rows are refused exactly when pages are short, and then nothing has changed."""
        table = request.table
        before = (table.length, table.pages, self.pool.num_free)
        num_missing = table.num_missing(table.length + num_rows)
        if num_missing > self.pool.num_free:
            with pytest.raises(CacheFull):
                table.reserve(num_rows)
            assert (table.length, table.pages, self.pool.num_free) == before
            return False
        assert table.reserve(num_rows) == before[0]
        # A copied page that nobody else holds is free again.
        assert self.pool.num_free - (before[2] - num_missing) in (0, 1)
        return True

    def _drop_extra(self, request: CachedRequest) -> None:
        request.table.truncate_to(request.table.length - len(request.extra))
        request.extra = []

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def keep(self, data: st.DataObject) -> None:
        """Keep rows from any row on, shared ones too."""
        request = self.some(data)
        table, rows = request.table, request.rows()
        start = data.draw(st.integers(0, table.length))
        offsets = st.sets(st.integers(0, max(0, table.length - start - 1)))
        path = sorted(data.draw(offsets)) if start < table.length else []
        try:
            table.keep(start, path)
        except CacheFull:
            return
        kept = rows[:start] + [rows[start + offset] for offset in path]
        num_true = sum(
            a == b for a, b in zip(kept, rows_of(request.salt, request.tokens), strict=False)
        )
        request.extra = kept[num_true:]
        assert table.num_sealed <= num_true

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        request = self.some(data)
        rows, pages = request.rows(), request.table.pages
        length = data.draw(st.integers(0, request.table.length))
        num_extra = len(request.extra) - min(len(request.extra), request.table.length - length)
        request.table.truncate_to(length)
        request.extra = request.extra[:num_extra]
        assert request.table.pages == pages[: self.pool.pages_for(length)]
        assert request.rows() == rows[:length]

    @precondition(lambda self: 0 < len(self.requests) < 5)
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        request, num_free = self.some(data), self.pool.num_free
        twin = CachedRequest(
            request.table.fork(), request.salt, list(request.tokens), list(request.extra)
        )
        assert self.pool.num_free == num_free
        self.requests.append(twin)

    @precondition(lambda self: self.requests)
    @rule(data=st.data(), is_known=st.booleans())
    def end(self, data: st.DataObject, is_known: bool) -> None:
        """The request is finished, preempted or cancelled, perhaps in the middle of a pass."""
        request = self.some(data)
        if is_known:
            self.prefixes.retire(request.table, request.tokens, request.salt)
        else:
            request.table.free()
        assert (request.table.pages, request.table.length) == ((), 0)
        self.requests.remove(request)

    @invariant()
    def every_row_is_where_its_request_finds_it(self) -> None:
        for request in self.requests:
            assert self.log.read(request.table) == request.rows()
            assert len(request.table.pages) == self.pool.pages_for(request.table.length)

    @invariant()
    def every_page_is_free_or_held_as_often_as_counted(self) -> None:
        held = Counter(page for request in self.requests for page in request.table.pages)
        assert [self.pool.num_holders(page) for page in range(NUM_PAGES)] == [
            held[page] for page in range(NUM_PAGES)
        ]
        assert self.pool.num_free == NUM_PAGES - len(held)

    @invariant()
    def the_tree_tells_the_truth(self) -> None:
        """Every page in it holds the true rows of its key: no guess, no other request's."""
        tree = self.prefixes.tree
        assert len(tree) == self.pool.num_stored
        assert tree.salts == {node.salt for node in tree.nodes}
        for node in tree.nodes:
            assert not self.pool.is_private(node.page)
            start = node.page * self.pool.page_size
            rows = self.log.rows[start : start + len(node.tokens)]
            key = [token for step in path_of(node) for token in step.tokens]
            assert rows == rows_of(node.salt, key)[-len(node.tokens) :]

    @invariant()
    def siblings_are_in_order_and_none_begins_with_another(self) -> None:
        for node in self.all_nodes():
            assert node.order == sorted(node.children)
            for one, other in zip(node.order, node.order[1:], strict=False):
                assert other[: len(one)] != one
            if node.children and node.parent is not None:
                assert len(node.tokens) == self.pool.page_size

    def all_nodes(self) -> Iterator[Node]:
        yield from self.prefixes.tree.nodes
        yield from (self.prefixes.tree.root(salt) for salt in SALTS)

    def teardown(self) -> None:
        for request in self.requests:
            self.prefixes.retire(request.table, request.tokens, request.salt)
        assert self.pool.num_free == NUM_PAGES
        self.pool.take(NUM_PAGES)
        assert (len(self.prefixes.tree), self.pool.num_stored) == (0, 0)


TestCache = CacheMachine.TestCase
TestCache.settings = settings(
    max_examples=40, stateful_step_count=30, deadline=None, derandomize=True
)
