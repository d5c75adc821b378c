"""Sharing rows between requests that begin with the same tokens."""

from __future__ import annotations

from collections.abc import Sequence

from forerun.cache.block_table import BlockTable
from forerun.cache.page_pool import PagePool
from forerun.cache.prefix_tree import Match, Node, PrefixTree


class SharedPrefixes:
    """Moves the rows of requests into the prefix tree and out of it.

        attach  → (reserve → keep → publish)* → retire

    Only sealed rows enter the tree: those that `publish` saw after a commit, never guesses, and
    never the rows of a pass that failed.
    """

    def __init__(self, pool: PagePool) -> None:
        self._pool = pool
        self.tree = PrefixTree(pool)

    def num_missing(self, tokens: Sequence[int], salt: str | None, num_rows: int) -> int:
        """How many free pages an empty table would use up to `attach` and grow to `num_rows`."""
        pages = self._match(tokens, salt).pages
        num_idle = sum(self._pool.num_holders(page) == 0 for page in pages)
        return num_idle + max(0, self._pool.pages_for(num_rows) - len(pages))

    def attach(self, table: BlockTable, tokens: Sequence[int], salt: str | None = None) -> int:
        """Give an empty table the rows of the longest known prefix of `tokens`; return how many.

        The last token is always left to be computed, since its logits are needed.
        """
        match = self._match(tokens, salt)
        num_rows = len(match.pages) * self._pool.page_size
        if match.tail_page is None:
            table.adopt(match.pages, num_rows)
        else:
            table.adopt((*match.pages, match.tail_page), num_rows + match.num_tail_rows)
            self._own_tail(table, match.tail_page)
        return table.length

    def _match(self, tokens: Sequence[int], salt: str | None) -> Match:
        return self.tree.match(tokens[: len(tokens) - 1], salt)

    def _own_tail(self, table: BlockTable, page: int) -> None:
        """Make the table's last page writable: copy it; if no page is left for that, take it out of
        the tree; if other tables hold it too, do without its rows."""
        if self._pool.num_free:
            table.unshare_tail()
        elif self._pool.num_holders(page) == 1:
            self.tree.drop(page)
        else:
            table.truncate_to(table.length - table.length % self._pool.page_size)

    def publish(self, table: BlockTable, tokens: Sequence[int], salt: str | None = None) -> None:
        """Declare all rows of `table` committed as the first of `tokens`, and share its full pages.

        If the tree has a page with the same key, the table takes that one and gives up its own.
        """
        assert table.length <= len(tokens), (table.length, len(tokens))
        num_before = table.num_sealed
        table.seal()
        page_size = self._pool.page_size
        if table.num_sealed // page_size > num_before // page_size:
            self._share_full_pages(table, tokens, salt)

    def retire(self, table: BlockTable, tokens: Sequence[int], salt: str | None = None) -> None:
        """Free a table; its published rows stay in the tree until their pages are needed."""
        table.truncate_to(table.num_sealed)
        last = self._share_full_pages(table, tokens, salt)
        num_tail_rows = table.length % self._pool.page_size
        if num_tail_rows:
            start = table.length - num_tail_rows
            tail = tuple(tokens[start : table.length])
            self.tree.add(last, tail, table.page(start // self._pool.page_size))
        table.free()

    def _share_full_pages(self, table: BlockTable, tokens: Sequence[int], salt: str | None) -> Node:
        """Add the table's full pages that are new to the tree; return the node of the last one."""
        page_size = self._pool.page_size
        num_full = num_known = table.num_sealed // page_size
        node = None
        while num_known and (node := self.tree.full_node(table.page(num_known - 1))) is None:
            num_known -= 1
        node = node or self.tree.root(salt)
        for idx in range(num_known, num_full):
            chunk = tuple(tokens[idx * page_size : (idx + 1) * page_size])
            node = self.tree.add(node, chunk, table.page(idx))
            assert node is not None, chunk
            table.swap_page(idx, node.page)
        return node
