"""The shape of a tree of guessed tokens."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final

from forerun.errors import InvalidProposal

ROOT: Final = -1


@dataclass(frozen=True)
class Tree:
    """The parent of each node; `ROOT` is a parent, but no node. A chain has one branch."""

    parents: tuple[int, ...]

    def __post_init__(self) -> None:
        for node, parent in enumerate(self.parents):
            if not ROOT <= parent < node:
                raise InvalidProposal(
                    f"node {node} has parent {parent}, but a parent must precede its child "
                    f"(allowed here: {ROOT} … {node - 1})."
                )

    @staticmethod
    @lru_cache(maxsize=64)
    def chain(length: int) -> Tree:
        """A chain; one object per length, so that its cached properties are computed once."""
        return Tree(tuple(range(ROOT, length - 1)))

    def __len__(self) -> int:
        return len(self.parents)

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """Distance of each node from the root; the root's children have depth 1."""
        depths: list[int] = []
        for parent in self.parents:
            depths.append(1 if parent == ROOT else depths[parent] + 1)
        return tuple(depths)

    @cached_property
    def depth(self) -> int:
        return max(self.depths, default=0)

    @cached_property
    def is_chain(self) -> bool:
        return all(parent == node - 1 for node, parent in enumerate(self.parents))

    @cached_property
    def _children(self) -> dict[int, tuple[int, ...]]:
        children: dict[int, list[int]] = {}
        for node, parent in enumerate(self.parents):
            children.setdefault(parent, []).append(node)
        return {parent: tuple(nodes) for parent, nodes in children.items()}

    def children(self, node: int) -> tuple[int, ...]:
        return self._children.get(node, ())

    def deepest(self, node: int) -> int:
        """The first of the deepest nodes below `node`, or `node` itself if it is a leaf."""
        best, inside = node, {node}
        for child, parent in enumerate(self.parents):
            if parent in inside:
                inside.add(child)
                if best == node or self.depths[child] > self.depths[best]:
                    best = child
        return best

    def path_to(self, node: int) -> tuple[int, ...]:
        """The nodes from the root's child down to `node`, both included; () for the root."""
        if self.is_chain:
            return tuple(range(node + 1))
        path: list[int] = []
        while node != ROOT:
            path.append(node)
            node = self.parents[node]
        return tuple(reversed(path))
