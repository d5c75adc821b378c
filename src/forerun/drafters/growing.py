"""Grow a proposal from draft laws, one level at a time."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Sequence
from typing import Final

from forerun.drafters.base import Budget, RequestView
from forerun.drafters.law import DraftLaw
from forerun.types import ROOT, Proposal, ProposalBuilder

Path = tuple[int, ...]  # the guesses from the root down to a node
Ranked = tuple[int, float]  # a guess, and the logarithm of its probability
_NUM_RANKED: Final = 8  # candidates considered below each guess


class Growth:
    """A proposal in the making: `num_branches` siblings at the root, then one guess below each.

    Until `level` is empty, call `extend` with the law after each path of `level`. Nodes are
    numbered level by level.
    """

    def __init__(self, request: RequestView, budget: Budget) -> None:
        self._request = request
        self._budget = budget
        self._builder = ProposalBuilder()
        self._draw_idx = itertools.count(budget.first_draw)
        self._depth = 0
        self.level: list[tuple[int, Path]] = [(ROOT, ())] if budget.depth else []

    def extend(self, laws: Sequence[DraftLaw | None]) -> None:
        """Guess below every node of `level`: one law for each of its paths; None ends a branch."""
        num = self.num_siblings
        below: list[tuple[int, Path]] = []
        for (node, path), law in zip(self.level, laws, strict=True):
            if law is None:
                continue
            for token, probs_q in law.guesses(self._request, self._depth, num, self._draw_idx):
                below.append((self._builder.add(node, token, probs_q), (*path, token)))
        self._depth += 1
        self.level = below

    @property
    def num_siblings(self) -> int:
        """Guesses to make below each node of `level`."""
        return self._budget.num_branches if self._depth == 0 else 1

    @property
    def is_full(self) -> bool:
        """Whether the deepest guesses are made, so that no more laws are needed."""
        return self._depth == self._budget.depth

    @property
    def goes_on(self) -> bool:
        """Whether the next guess is single, and gets another one below it: a chain."""
        return (
            self.num_siblings == 1 and len(self.level) == 1 and self._depth + 1 < self._budget.depth
        )

    @property
    def num_ahead(self) -> int:
        """The most guesses of a chain that may still be fed, in this round and one more like it."""
        return 2 * self._budget.depth - self._depth

    def proposal(self) -> Proposal:
        return self._builder.build()


def grow(
    request: RequestView, budget: Budget, law_after: Callable[[Path], DraftLaw | None]
) -> Proposal:
    """Return the proposal of a drafter that knows the law after any path without a further pass."""
    growth = Growth(request, budget)
    while growth.level and not growth.is_full:
        growth.extend([law_after(path) for _, path in growth.level])
    return growth.proposal()


def grow_likeliest(budget: Budget, ranked: Callable[[Path, int], Sequence[Ranked]]) -> Proposal:
    """Return the tree of the depth · num_branches likeliest guesses, whatever its shape (EAGLE-2,
    Li et al. 2024).

    `ranked(path, num)` returns up to `num` guesses after a path. They are picked, not drawn, so any
    may be left out."""
    builder = ProposalBuilder()
    waiting: list[tuple[float, Path, int]] = []  # heap: −log of the path's chance, path, parent

    def ask(path: Path, node: int, unlikely: float) -> None:
        num = budget.num_branches if node == ROOT else _NUM_RANKED
        for token, share in ranked(path, num) if len(path) < budget.depth else ():
            heapq.heappush(waiting, (unlikely - share, (*path, token), node))

    ask((), ROOT, 0.0)
    for _ in range(budget.depth * budget.num_branches):
        if not waiting:
            break
        unlikely, path, parent = heapq.heappop(waiting)
        ask(path, builder.add(parent, path[-1]), unlikely)
    return builder.build()
