"""Pages by the tokens of their rows and of all rows before them: integers only, no arrays."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from forerun.cache.page_pool import PagePool

Tokens = tuple[int, ...]

_NO_PAGE: Final = -1  # of a root, which has no tokens


@dataclass(eq=False)
class Node:
    """A page and the tokens of its rows. Its key is the tokens of all its ancestors, then its own.

    No child's tokens begin with a sibling's. So in the sorted order of the children, the one that
    shares the longest prefix with some tokens is next to the place where these would be inserted.
    """

    page: int
    tokens: Tokens
    parent: Node | None
    salt: str | None
    children: dict[Tokens, Node] = field(default_factory=dict)
    order: list[Tokens] = field(default_factory=list)  # of `children`, sorted

    def neighbours(self, tokens: Tokens) -> Iterator[Node]:
        idx = bisect_left(self.order, tokens)
        for key in self.order[max(0, idx - 1) : idx + 1]:
            yield self.children[key]

    def subtree(self) -> Iterator[Node]:
        """Iterate over this node and all below; as deep as a context is long, so no recursion."""
        stack = [self]
        while stack:
            node = stack.pop()
            stack += node.children.values()
            yield node


@dataclass(frozen=True)
class Match:
    """The known prefix of some tokens: whole pages, then `num_tail_rows` rows of `tail_page`."""

    pages: tuple[int, ...]
    num_tail_rows: int = 0
    tail_page: int | None = None


class PrefixTree:
    """Which stored page holds the rows of which tokens, after which tokens.

        salt "a" ─┬─ [t0 … t15] page 7 ─┬─ [t16 … t31] page 2 ─── [t32 … t40] page 9
                  │                     └─ [u16 … u31] page 4        a leaf may be short
                  └─ [v0 … v15] page 1

    A row depends on nothing but the key of its page, so equal keys mean equal rows. Callers with
    different salts have different roots and never share pages.
    """

    def __init__(self, pool: PagePool) -> None:
        self._pool = pool
        self._roots: dict[str | None, Node] = {}
        self._nodes: dict[int, Node] = {}  # by page
        pool.on_forget = self.drop

    def __len__(self) -> int:
        return len(self._nodes)

    @property
    def salts(self) -> frozenset[str | None]:
        """The salts that have stored pages."""
        return frozenset(self._roots)

    @property
    def nodes(self) -> tuple[Node, ...]:
        return tuple(self._nodes.values())

    def full_node(self, page: int) -> Node | None:
        """Return the node of a page if all rows of the page are known, else None."""
        node = self._nodes.get(page)
        return node if node and len(node.tokens) == self._pool.page_size else None

    def root(self, salt: str | None) -> Node:
        """Return the root of a salt; the tree keeps it once a page is added below it."""
        return self._roots.get(salt) or Node(_NO_PAGE, (), None, salt)

    def match(self, tokens: Sequence[int], salt: str | None) -> Match:
        """Return the longest known prefix of `tokens`; change nothing."""
        node, pages, page_size = self.root(salt), list[int](), self._pool.page_size
        window = tuple(tokens[:page_size])
        while len(window) == page_size and window in node.children:
            node = node.children[window]
            pages.append(node.page)
            end = (len(pages) + 1) * page_size
            window = tuple(tokens[end - page_size : end])
        shared = [(_num_equal(near.tokens, window), near.page) for near in node.neighbours(window)]
        num_rows, tail_page = max(shared, default=(0, _NO_PAGE))
        return Match(tuple(pages), num_rows, tail_page) if num_rows else Match(tuple(pages))

    def add(self, parent: Node, tokens: Tokens, page: int) -> Node | None:
        """Return the node for `tokens` below `parent`: the existing one, or a new one with `page`.

        Returns None if a sibling's tokens begin with `tokens` and go on. A sibling whose tokens are
        a prefix of `tokens` is dropped.
        """
        assert 0 < len(tokens) <= self._pool.page_size, len(tokens)
        if tokens in parent.children:
            return parent.children[tokens]
        for near in tuple(parent.neighbours(tokens)):
            num_equal = _num_equal(near.tokens, tokens)
            if num_equal == len(tokens):
                return None
            if num_equal == len(near.tokens):
                self.drop(near.page)
        return self._link(Node(page, tokens, parent, parent.salt))

    def _link(self, node: Node) -> Node:
        parent = node.parent
        assert parent is not None
        assert node.page not in self._nodes, f"page {node.page} stands in the tree already"
        if parent.parent is None:
            self._roots[node.salt] = parent
        parent.children[node.tokens] = node
        insort(parent.order, node.tokens)
        self._nodes[node.page] = node
        self._pool.store(node.page)
        return node

    def clear(self) -> None:
        """Forget every page; requests keep the pages that they hold."""
        for salt in tuple(self._roots):
            self.forget(salt)

    def forget(self, salt: str | None) -> None:
        """Forget every page of this salt."""
        for node in tuple(self.root(salt).children.values()):
            self.drop(node.page)

    def drop(self, page: int) -> None:
        """Forget a page and all pages below it."""
        top = self._nodes[page]
        parent = top.parent
        assert parent is not None
        del parent.children[top.tokens]
        del parent.order[bisect_left(parent.order, top.tokens)]
        if parent.parent is None and not parent.children:
            del self._roots[top.salt]
        for node in top.subtree():
            del self._nodes[node.page]
            self._pool.forget(node.page)


def _num_equal(one: Sequence[int], other: Sequence[int]) -> int:
    """Return the length of the common prefix of two runs of tokens."""
    for num_equal, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return num_equal
    return min(len(one), len(other))
