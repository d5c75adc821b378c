"""Drafters that raise exceptions, and drafters that return invalid proposals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, cast

import numpy as np

from forerun.drafters import Budget, CachedDrafter, Drafter, RequestView
from forerun.types import Draw, Proposal, Tree, Verdict


class Throwing:
    """Wraps a drafter; now and then any of its methods raises."""

    def __init__(self, drafter: Drafter, rng: Random, rate: float = 0.01) -> None:
        self.drafter = drafter
        self._rng = rng
        self._rate = rate

    @property
    def picks(self) -> bool:
        return self.drafter.picks

    @property
    def num_requests(self) -> int:
        return self.drafter.num_requests

    def _maybe_throw(self) -> None:
        if self._rng.random() < self._rate:
            raise RuntimeError("thrown at random")

    def begin(self, request: RequestView) -> None:
        self.drafter.begin(request)
        self._maybe_throw()

    def propose(self, requests: Sequence[RequestView], budgets: Sequence[Budget]) -> list[Proposal]:
        self._maybe_throw()
        proposals = self.drafter.propose(requests, budgets)
        self._maybe_throw()
        return proposals

    def commit(self, request: RequestView, verdict: Verdict) -> None:
        self.drafter.commit(request, verdict)
        self._maybe_throw()

    def end(self, request: RequestView) -> None:
        self.drafter.end(request)
        self._maybe_throw()


class ThrowingCached(Throwing):
    """The same for a drafter with a cache."""

    drafter: CachedDrafter

    @property
    def max_len(self) -> int:
        return self.drafter.max_len

    @property
    def row_bytes(self) -> int:
        return self.drafter.row_bytes

    def num_pages_in_use(self) -> int:
        return self.drafter.num_pages_in_use()

    def allocate(self, num_pages: int, page_size: int) -> None:
        self.drafter.allocate(num_pages, page_size)

    def has_room_for(self, request: RequestView) -> bool:
        return self.drafter.has_room_for(request)

    def is_waiting(self, request: RequestView) -> bool:
        return self.drafter.is_waiting(request)

    def evict(self, request: RequestView) -> None:
        self.drafter.evict(request)
        self._maybe_throw()


def throwing(drafter: Drafter, rng: Random) -> Drafter:
    kind = ThrowingCached if isinstance(drafter, CachedDrafter) else Throwing
    return kind(drafter, rng)


class Garbage:
    """Guesses token 1, and now and then returns an invalid proposal."""

    num_requests = 0

    def __init__(self, vocab_size: int, rng: Random, picks: bool, rate: float = 0.05) -> None:
        self.picks = picks
        self._vocab_size = vocab_size
        self._rng = rng
        self._rate = rate

    def begin(self, request: RequestView) -> None:
        pass

    def propose(self, requests: Sequence[RequestView], budgets: Sequence[Budget]) -> list[Proposal]:
        if self._rng.random() < self._rate / 4:
            return [Proposal.empty()] * (len(requests) + 1)
        return [self._answer(budget) for budget in budgets]

    def commit(self, request: RequestView, verdict: Verdict) -> None:
        pass

    def end(self, request: RequestView) -> None:
        pass

    def _answer(self, budget: Budget) -> Proposal:
        if self._rng.random() >= self._rate:
            return Proposal.chain([1] * budget.depth)
        answer: Proposal = self._rng.choice(nonsense(budget, self._vocab_size))()
        return answer


def nonsense(budget: Budget, vocab_size: int) -> list[Callable[[], Any]]:
    """Return functions that make invalid proposals; some raise already when they are called."""
    wide = np.full(vocab_size + 9, 1 / (vocab_size + 9))
    return [
        lambda: Proposal.chain([vocab_size]),
        lambda: Proposal.chain([10**12]),
        lambda: Proposal.chain([-1]),
        lambda: Proposal.chain([1] * (budget.depth + 1)),
        lambda: Proposal.chain([1] * 5000),
        lambda: Proposal.chain([1], [wide]),
        lambda: Proposal.chain(cast(Any, [1.5])),
        lambda: Proposal.chain(cast(Any, ["a"])),
        lambda: bush(vocab_size),
        lambda: Proposal(Tree((0,)), (1,), (Draw(0),)),
        lambda: Proposal(Tree((-1, -1)), (1, 1), (Draw(0), Draw(1))),
        lambda: Proposal(Tree((-1,)), (1,), ()),
        lambda: None,
        lambda: [1, 2, 3],
    ]


def bush(num_children: int) -> Proposal:
    """A proposal with far more siblings than any budget allows."""
    parents, tokens = (-1,) * num_children, tuple(range(num_children))
    return Proposal(Tree(parents), tokens, tuple(map(Draw, range(num_children))))
