"""The batch of one pass: its plan, its inputs on the device, and what it hands out."""

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

_CHUNK_LEN: Final = 512  # positions computed together, in chunks with fixed boundaries


class RopeTable:
    """cos and sin of position × frequency; bits do not depend on the order of requests."""

    def __init__(self, inv_freq: FloatArray) -> None:
        self._inv_freq = inv_freq
        self._turns: F32 = np.empty((0, 2 * len(inv_freq)), np.float32)

    def rotations(self, positions: Sequence[int]) -> F32:
        """Return [T, head_dim]: cos, then sin; the caller must not write to it."""
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
    """One pass; columns and inputs are computed on first use, as a pass begun early needs none."""

    plan: Plan
    shape: AttentionShape
    rope: RopeTable
    device: torch.device
    placed: Inputs | None = None  # None: not sent yet
    num_embeddings: int = 1 << 31  # rows of the embedding table, once `embed` was called
    num_splits: int | None = None  # of keys; None: as many as its own keys need
    recording: Recording | None = None  # while the pass is recorded
    given: Given | None = None
    num_fill: int = 0  # padding rows behind the known tokens of a chain
    tapped: list[torch.Tensor] = field(default_factory=list)  # so far
    handed_out: HandedOut | None = None  # what was tapped, on the device, after the pass
    sent_out: HiddenStates | None = None  # the same, for the host to read later or never

    @cached_property
    def columns(self) -> Columns:
        return Columns.of(self.plan)

    @property
    def num_known(self) -> int:
        """Known tokens of a chain, padding included: all from the last known one on are wanted."""
        return len(self.plan) - len(self.plan.wanted) + 1 + self.num_fill

    def fill(self, num: int, dump_slot: int) -> None:
        """Pad a chain's known tokens with `num` rows."""
        at = self.num_known
        self.columns = self.columns.filled(at, num, dump_slot)
        assert self.given is not None, "only chains over hidden states have known rows"
        self.given = replace(self.given, fill=(at, num))
        self.num_fill = num

    @property
    def num_wanted(self) -> list[int]:
        """Wanted rows of each span."""
        return [len(row.span.wanted) for row in self.plan.rows]

    def inputs(self) -> Inputs:
        """Return the inputs on the device; if there are none yet, send them to new memory."""
        if self.placed is None:
            columns = self.columns
            sizes = (columns.num_tokens, len(columns.wanted), self.shape.head_dim)
            self.placed = Inputs(*sizes, columns.num_key_slots, self.device)
            self.send(columns, self.placed, dump_slot=0)  # nothing is padded
        return self.placed

    def send(self, columns: Columns, inputs: Inputs, dump_slot: int) -> None:
        """Send `columns`, of this pass or of the one that follows it."""
        inputs.send(columns, self.rope.rotations(columns.positions), dump_slot)
        if self.given is not None:
            inputs.give(self.given)

    def send_out(self) -> None:
        """Start the copy of what was tapped; to be called before another pass is begun."""
        self.sent_out = None if self.handed_out is None else self.handed_out.send()

    def check(self, num_embeddings: int) -> None:
        for row in self.plan.rows:
            tokens = row.span.tokens
            assert 0 <= min(tokens) <= max(tokens) < num_embeddings, tokens


def bucket(num: int, sizes: Sequence[int]) -> int | None:
    """Return the smallest of the ascending `sizes` that is at least `num`, or None."""
    idx = bisect_left(sizes, num)
    return sizes[idx] if idx < len(sizes) else None
