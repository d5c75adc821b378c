"""How a round's guesses were made, and whether a drafter's pass repeats that in the next round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from forerun.kernels.base import ChainNoise
from forerun.kernels.cuda.asked_draws import Draws
from forerun.kernels.cuda.heads.given import HandedOut
from forerun.kernels.cuda.passes.asked import Asked
from forerun.kernels.cuda.rounds.buffers import are_same
from forerun.types import IntArray

F32 = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Settled:
    """The outcome of the verification before a begun round."""

    tokens: Sequence[int]  # that it drew
    count: int  # guesses that were accepted
    row: int  # next of the draft's cache, if none had been accepted
    slots: IntArray  # of the draft's cache

    @property
    def new(self) -> tuple[int, ...]:
        return tuple(self.tokens[: self.count + 1])


@dataclass(frozen=True)
class HeadDraft:
    """A pass in which a head guessed a chain."""

    one: Asked
    picks: F32  # [depth, 3]

    @cached_property
    def tokens(self) -> tuple[int, ...]:
        return tuple([int(token) for token in self.picks[:, 0].tolist()])

    @property
    def depth(self) -> int:
        return len(self.picks)

    @property
    def noise(self) -> ChainNoise:
        assert self.one.batch.given is not None
        return self.one.batch.given.noise

    @property
    def next_row(self) -> int:
        """The cache row of the token that is known next; guesses are not kept in the cache."""
        (row,) = self.one.batch.plan.rows
        return row.span.start + len(row) - self.depth + 1

    def takes(self, handed_out: HandedOut | None) -> bool:
        """Whether a verification's hidden states have the widths of what this head is given."""
        given = self.one.batch.given
        if given is None or handed_out is None or len(handed_out.shapes) > len(given.arrays):
            return False
        pairs = zip(given.arrays, handed_out.shapes, strict=False)
        return all(array.shape[1] == shape[1] for array, shape in pairs)

    def is_repeated(self, one: Asked, settled: Settled) -> bool:
        """Whether the pass `one` is this draft again, after the accepted guesses.

        Hidden states are compared only once for a recorded round (`Begun`): wrong ones would change
        guesses, but no text.
        """
        row, mine, given, num = one.row, self.one, one.batch.given, settled.count + 1
        if row is None or given is None:
            return False
        noise, before = given.noise, self.noise
        return (
            one.body == mine.body
            and one.store is mine.store
            and row.table is mine.batch.plan.rows[0].table
            and row.span.start == settled.row
            and len(row) == num + self.depth - 1
            and row.span.tokens[:num] == settled.new
            and are_same(row.slots, settled.slots[: len(row.slots)])
            and (noise.temperature, noise.key) == (before.temperature, before.key)
            and noise.position == before.position + num
        )


@dataclass(frozen=True)
class ModelDraft:
    """Passes of a draft model, each of which guessed its best token."""

    one: Asked  # the first
    tokens: tuple[int, ...]

    @property
    def depth(self) -> int:
        return len(self.tokens)

    @property
    def noise(self) -> ChainNoise:
        return ChainNoise()

    @property
    def next_row(self) -> int:
        (row,) = self.one.batch.plan.rows
        return row.span.start + len(row.span)

    def goes_on(self, one: Asked) -> bool:
        """Whether the pass `one` runs over the guess that was made last."""
        row, first = one.row, self.one.batch.plan.rows[0]
        return (
            row is not None
            and one.store is self.one.store
            and row.table is first.table
            and row.num_written == len(self.tokens) - 1
            and row.span.tokens == self.tokens
            and row.span.start == self.next_row
        )

    def is_repeated(self, one: Asked, settled: Settled, guesses: Sequence[int]) -> int | None:
        """Return which guess of the next round the pass `one` draws, or None."""
        row, mine = one.row, self.one
        if row is None or one.body != mine.body or one.store is not mine.store:
            return None
        if row.table is not mine.batch.plan.rows[0].table or not is_greedy(one.draws):
            return None
        end = settled.row + settled.count + 1  # rows once all known tokens are fed
        if row.span.start < end:
            idx, known = 0, settled.new[row.span.start - settled.row :]
            is_next = row.span.start + len(row.span) == end and row.span.start >= settled.row
        else:
            idx = len(row.span)
            known = tuple(guesses[:idx])
            is_next = row.num_written == idx - 1 and row.span.start == end and idx < self.depth
        is_same = is_next and row.span.tree.is_chain and row.span.tokens == known
        is_there = is_same and are_same(row.slots, settled.slots[: len(row.slots)])
        return idx if is_there else None


Draft: TypeAlias = HeadDraft | ModelDraft


def is_greedy(draws: Draws) -> bool:
    """Whether there is one draw, of the best token of unchanged logits."""
    if len(draws) != 1 or draws[0] is None:
        return False
    return draws[0].params.temperature == 0 and not draws[0].changes_logits


def slots_of(one: Asked) -> IntArray | None:
    """Return the slots of all rows that the next pass may need if it is like `one`, or None."""
    plan = one.batch.plan
    more = None if plan.next_slots is None else plan.next_slots[0]
    return None if more is None else np.concatenate((plan.rows[0].slots, more))
