"""One pass in the making."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

import numpy as np
import torch

from forerun.kernels.base import AttentionShape
from forerun.kernels.cuda.heads.given import Given, HandedOut, HiddenStates
from forerun.kernels.cuda.passes.columns import Columns
from forerun.kernels.cuda.passes.inputs import F32, Inputs
from forerun.kernels.cuda.passes.recording import Recording
from forerun.kernels.plan import Plan
from forerun.types import FloatArray

_CHUNK_LEN: Final = 512  # positions computed together, always the same ones


class RopeTable:
    """cos and sin of position × frequency; a position's bits do not depend on who asks first."""

    def __init__(self, inv_freq: FloatArray) -> None:
        self._inv_freq = inv_freq
        self._turns: F32 = np.empty((0, 2 * len(inv_freq)), np.float32)

    def rotations(self, positions: Sequence[int]) -> F32:
        """[T, head_dim]: cos, then sin; not to be written to."""
        is_range = isinstance(positions, range)
        last = positions[-1] if is_range else max(positions)
        while len(self._turns) <= last:
            at = len(self._turns) + np.arange(_CHUNK_LEN)
            angles = at[:, None] * self._inv_freq[None, :]
            chunk = np.concatenate((np.cos(angles), np.sin(angles)), axis=1, dtype=np.float32)
            self._turns = np.concatenate((self._turns, chunk))
        if is_range:
            return self._turns[positions[0] : last + 1]
        return self._turns.take(positions, axis=0)


@dataclass(eq=False)
class CudaBatch:
    """What it holds is worked out when it is asked for: a pass that was begun early needs none."""

    plan: Plan
    shape: AttentionShape
    rope: RopeTable
    device: torch.device
    placed: Inputs | None = None  # None: it has not been sent
    num_embeddings: int = 1 << 31  # of the table that tokens are looked up in, once they were
    num_splits: int | None = None  # of keys; None: as many as its own keys need
    recording: Recording | None = None  # while it is recorded
    given: Given | None = None
    num_fill: int = 0  # rows behind the known ones of a chain, which are for nobody
    tapped: list[torch.Tensor] = field(default_factory=list)  # so far
    handed_out: HandedOut | None = None  # on the device, once it has run
    sent_out: HiddenStates | None = None  # the same, for the host to read later or never

    @cached_property
    def columns(self) -> Columns:
        return Columns.of(self.plan)

    @property
    def num_known(self) -> int:
        """Of a chain: all from the last known token on are wanted."""
        return len(self.plan) - len(self.plan.wanted) + 1 + self.num_fill

    def fill(self, num: int, dump_slot: int) -> None:
        """Room for `num` more known tokens."""
        at = self.num_known
        self.columns = self.columns.filled(at, num, dump_slot)
        assert self.given is not None, "only chains over hidden states have known rows"
        self.given = replace(self.given, fill=(at, num))
        self.num_fill = num

    @property
    def num_wanted(self) -> list[int]:
        """Rows that each span asks for."""
        return [len(row.span.wanted) for row in self.plan.rows]

    def inputs(self) -> Inputs:
        """Where the device finds it; sent now, to a place of its own, unless it was."""
        if self.placed is None:
            columns = self.columns
            sizes = (columns.num_tokens, len(columns.wanted), self.shape.head_dim)
            self.placed = Inputs(*sizes, columns.num_key_slots, self.device)
            self.send(columns, self.placed, dump_slot=0)  # there is nothing to fill up
        return self.placed

    def send(self, columns: Columns, inputs: Inputs, dump_slot: int) -> None:
        """Its own columns, or those of what follows."""
        inputs.send(columns, self.rope.rotations(columns.positions), dump_slot)
        if self.given is not None:
            inputs.give(self.given)

    def send_out(self) -> None:
        """What it handed out, before another pass is begun."""
        self.sent_out = None if self.handed_out is None else self.handed_out.send()

    def check(self, num_embeddings: int) -> None:
        for row in self.plan.rows:
            tokens = row.span.tokens
            assert 0 <= min(tokens) <= max(tokens) < num_embeddings, tokens


def bucket(num: int, sizes: Sequence[int]) -> int | None:
    """The smallest size that has room; they ascend."""
    idx = bisect_left(sizes, num)
    return sizes[idx] if idx < len(sizes) else None
