"""A round that was begun before the host knew how many guesses of the last one were accepted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from forerun.kernels.base import Body, ChainNoise
from forerun.kernels.cuda.batch import CudaBatch
from forerun.kernels.cuda.drawing import Started
from forerun.kernels.cuda.heads.given import SentOut
from forerun.kernels.cuda.rounds.round import Follow, RoundGraph
from forerun.kernels.cuda.store import KVStore
from forerun.kernels.plan import Plan, PlanRow
from forerun.sampling import CoupledDraws

F32 = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Drafted:
    """A pass in which a head guessed a chain."""

    body: Body
    batch: CudaBatch
    store: KVStore
    picks: F32  # [depth, 3]

    @property
    def depth(self) -> int:
        return len(self.picks)

    @property
    def row(self) -> PlanRow:
        return self.batch.plan.rows[0]

    @property
    def noise(self) -> ChainNoise:
        assert self.batch.given is not None
        return self.batch.given.noise

    @property
    def num_known(self) -> int:
        return len(self.row) - self.depth + 1

    @property
    def tokens(self) -> tuple[int, ...]:
        return tuple(int(token) for token in self.picks[:, 0].tolist())


@dataclass
class Begun:
    """What is asked for is held against it; if it is not the same, the round was for nobody."""

    before: Drafted
    row: PlanRow  # of the verification before it
    draw: CoupledDraws
    known: SentOut  # its hidden states
    body: Body  # the target's
    store: KVStore
    follow: Follow
    graph: RoundGraph
    picks: Tensor  # in the host's memory, once `are_picked` is
    are_picked: Any  # torch.cuda.Event
    started: Started
    handed_out: SentOut
    tokens: Sequence[int] = field(default_factory=tuple)  # drawn by the verification before it
    count: int = 0  # of its guesses that were accepted
    guesses: tuple[int, ...] = ()  # of this round, once they are known

    def settle(self, tokens: Sequence[int]) -> None:
        self.tokens, self.count = tokens, 0
        for guess, token in zip(self.follow.guesses, tokens, strict=False):
            if guess != token:
                break
            self.count += 1

    def picked_for(self, body: Body, batch: CudaBatch, store: KVStore) -> F32 | None:
        """Its guesses, if these are asked for."""
        if body != self.before.body or store is not self.before.store:
            return None
        if not self._is_draft(batch.plan) or not self._is_given(batch):
            return None
        if self.are_picked is not None:
            self.are_picked.synchronize()
        picks: F32 = self.picks.numpy().copy()
        self.guesses = tuple(int(token) for token in picks[:, 0].tolist())
        return picks

    def _is_draft(self, plan: Plan) -> bool:
        if len(plan.rows) != 1:
            return False
        row, num = plan.rows[0], self.count + 1
        return (
            row.table is self.before.row.table
            and row.span.start == self.follow.rows[0]
            and len(row) == num + self.graph.depth - 1
            and row.span.tokens[:num] == tuple(self.tokens[:num])
            and np.array_equal(row.slots, self.follow.slots[0][: len(row.slots)])
        )

    def _is_given(self, batch: CudaBatch) -> bool:
        given, before, num = batch.given, self.before.noise, self.count + 1
        known = self.known.views()
        if given is None or len(given.arrays) < len(known):
            return False
        noise = given.noise
        return (
            noise.temperature == before.temperature
            and noise.key == before.key
            and noise.position == before.position + num
            and all(
                np.array_equal(rows[:num], mine[:num])
                for rows, mine in zip(given.arrays, known, strict=False)
            )
        )

    def is_for(
        self, body: Body, plan: Plan, store: KVStore, draws: Sequence[CoupledDraws | None]
    ) -> bool:
        """Whether it verifies these guesses, or more behind them."""
        if body != self.body or store is not self.store or len(plan.rows) != 1:
            return False
        row, draw = plan.rows[0], draws[0] if draws else None
        return (
            draw is not None
            and row.table is self.row.table
            and row.num_written == 0
            and row.span.tree.is_chain
            and row.span.start == self.follow.rows[1] + self.count
            and row.span.tokens == (self.tokens[self.count], *self.guesses)[: len(row.span)]
            and np.array_equal(row.slots, self.follow.slots[1][: len(row.slots)])
            and len(row.span.wanted) == len(row.span)
            and draw.params is self.draw.params
            and draw.noise is self.draw.noise
            and draw.position == self.draw.position + self.count + 1
        )
