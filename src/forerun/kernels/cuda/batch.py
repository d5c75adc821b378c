"""A plan as the kernels read it: integers and rotations in one buffer, which travels at once."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import torch

from forerun.kernels.base import AttentionShape
from forerun.kernels.cuda.given import Given, GivenInputs, HandedOut
from forerun.kernels.cuda.recording import Recording
from forerun.kernels.plan import Plan, PlanRow
from forerun.types import FloatArray, IntArray

F32 = npt.NDArray[np.float32]
I32 = npt.NDArray[np.int32]

_CHUNK_LEN: Final = 512  # positions computed together, always the same ones
_PER_TOKEN: Final = ("tokens", "slots", "starts", "firsts", "lengths", "own_firsts", "num_keys")


class RopeTable:
    """cos and sin of position × frequency; a position's bits do not depend on who asks first."""

    def __init__(self, inv_freq: FloatArray) -> None:
        self._inv_freq = inv_freq
        self._turns: F32 = np.empty((0, 2 * len(inv_freq)), np.float32)

    def rotations(self, positions: IntArray) -> F32:
        """[T, head_dim]: cos, then sin."""
        while len(self._turns) <= int(positions.max()):
            at = len(self._turns) + np.arange(_CHUNK_LEN)
            angles = at[:, None] * self._inv_freq[None, :]
            chunk = np.concatenate((np.cos(angles), np.sin(angles)), axis=1, dtype=np.float32)
            self._turns = np.concatenate((self._turns, chunk))
        return self._turns[positions]


class Inputs:
    """The device's side: room for `num_tokens` tokens, `num_wanted` of them asked for.

    Its addresses stay, so a recorded pass reads whatever batch was sent last.
    """

    def __init__(
        self,
        num_tokens: int,
        num_wanted: int,
        head_dim: int,
        num_key_slots: int,
        device: torch.device,
    ) -> None:
        self.num_tokens, self.num_wanted = num_tokens, num_wanted
        head = len(_PER_TOKEN) * num_tokens + num_wanted
        self._rotations_at = -(-head // 4) * 4
        self._keys_at = self._rotations_at + num_tokens * head_dim
        num_words = self._keys_at + num_key_slots
        self._host = torch.empty(num_words, dtype=torch.int32, pin_memory=device.type == "cuda")
        self._words: I32 = self._host.numpy()
        self._device = torch.empty(num_words, dtype=torch.int32, device=device)
        for idx, name in enumerate(_PER_TOKEN):
            setattr(self, name, self._device[idx * num_tokens : (idx + 1) * num_tokens])
        self.wanted = self._device[head - num_wanted : head]
        rotations = self._device[self._rotations_at : self._keys_at]
        self.rotations = rotations.view(torch.float32).view(num_tokens, head_dim)
        floats = self._words[self._rotations_at : self._keys_at].view(np.float32)
        self._rotations: F32 = floats.reshape(num_tokens, head_dim)
        self.key_slots = self._device[self._keys_at :]
        self.given: GivenInputs | None = None

    tokens: torch.Tensor  # [T]
    slots: torch.Tensor  # [T] where its key and value go
    starts: torch.Tensor  # [T] how many of its keys are from earlier passes, at least
    firsts: torch.Tensor  # [T] where, among the key slots, those of its committed keys begin
    lengths: torch.Tensor  # [T] how many they are
    own_firsts: torch.Tensor  # [T] where those of its own branch begin
    num_keys: torch.Tensor  # [T]

    def send(self, batch: CudaBatch, dump_slot: int) -> None:
        """What is not filled by the batch reads and writes the dump slot, and nobody asks."""
        words, num = self._words, self.num_tokens
        num_real, keys = len(batch.plan), batch.keys
        per_token = words[: len(_PER_TOKEN) * num].reshape(len(_PER_TOKEN), num)
        wanted = words[len(_PER_TOKEN) * num :][: self.num_wanted]
        rotations = self._rotations
        per_token[:, :num_real] = batch.per_token
        wanted[: len(batch.plan.wanted)] = batch.plan.wanted
        rotations[:num_real] = batch.rotations
        if num_real < num or len(batch.plan.wanted) < self.num_wanted:
            per_token[:, num_real:] = np.array([0, dump_slot, 0, len(keys), 1, 0, 1])[:, None]
            wanted[len(batch.plan.wanted) :] = 0
            rotations[num_real:] = 0
        last = self._keys_at + len(keys)
        words[self._keys_at : last] = keys
        words[last] = dump_slot
        self._device[: last + 1].copy_(self._host[: last + 1], non_blocking=True)
        if batch.given is not None:
            if self.given is None:
                self.given = GivenInputs(batch.given, self.num_tokens, self._device.device)
            self.given.send(batch.given)

    def part(self, first: int, last: int, wanted: torch.Tensor) -> Inputs:
        """Some of the tokens; all is where it was."""
        part = copy(self)
        part.num_tokens, part.num_wanted, part.wanted = last - first, len(wanted), wanted
        for name in _PER_TOKEN:
            setattr(part, name, getattr(self, name)[first:last])
        part.rotations = self.rotations[first:last]
        if self.given is not None:
            part.given = copy(self.given)
            part.given.rows = [rows[first:last] for rows in self.given.rows]
        return part


@dataclass(eq=False)
class CudaBatch:
    plan: Plan
    shape: AttentionShape
    per_token: I32  # [7, T]
    rotations: F32  # [T, head_dim]
    keys: IntArray  # slots of keys, in logical order, request after request
    device: torch.device
    placed: Inputs | None = None  # None: it has not been sent
    num_embeddings: int = 1 << 31  # of the table that tokens are looked up in, once they were
    num_splits: int | None = None  # of keys; None: as many as its own keys need
    recording: Recording | None = None  # while it is recorded
    given: Given | None = None
    tapped: list[torch.Tensor] = field(default_factory=list)  # so far
    handed_out: HandedOut | None = None  # once it has run

    @classmethod
    def of(
        cls, plan: Plan, shape: AttentionShape, rope: RopeTable, device: torch.device
    ) -> CudaBatch:
        per_token = np.empty((len(_PER_TOKEN), len(plan)), np.int32)
        keys = _Keys(per_token[2:])
        for row in plan.rows:
            keys.add(row)
        per_token[0], per_token[1] = plan.tokens, plan.write_slots  # `check` sees them whole
        rotations = rope.rotations(plan.positions)
        return cls(plan, shape, per_token, rotations, np.concatenate(keys.slots), device)

    @property
    def most_keys(self) -> int:
        return int(self.per_token[6].max())

    @property
    def num_wanted(self) -> list[int]:
        """Rows that each span asks for."""
        return [len(row.span.wanted) for row in self.plan.rows]

    @property
    def num_key_slots(self) -> int:
        return len(self.keys) + 1

    def inputs(self) -> Inputs:
        """Where the device finds it; sent now, to a place of its own, unless it was."""
        if self.placed is None:
            num_wanted = len(self.plan.wanted)
            size = (len(self.plan), num_wanted, self.shape.head_dim, self.num_key_slots)
            self.placed = Inputs(*size, self.device)
            self.placed.send(self, dump_slot=0)  # there is nothing to fill up
        return self.placed

    def check(self, num_embeddings: int) -> None:
        tokens = self.plan.tokens
        assert 0 <= tokens.min() <= tokens.max() < num_embeddings, tokens


class _Keys:
    """Fills starts, firsts, lengths, own_firsts and num_keys [5, T], a request at a time."""

    def __init__(self, per_token: I32) -> None:
        self._per_token = per_token
        self._num_tokens = self._num_slots = 0
        self.slots: list[IntArray] = []

    def add(self, row: PlanRow) -> None:
        first, at = self._num_slots, self._num_tokens
        self._take(row.slots)
        mine = self._per_token[:, at : at + len(row)]
        mine[0], mine[1] = row.span.start, first
        if row.span.tree.is_chain:  # all its keys lie in a row
            mine[2] = mine[4] = row.span.start + 1 + np.arange(row.num_written, len(row.span))
            mine[3] = 0
        else:
            mine[2] = row.span.start
            for column, idx in enumerate(range(row.num_written, len(row.span))):
                path = row.ancestors(idx)
                mine[3, column] = self._num_slots
                mine[4, column] = row.span.start + len(path)
                self._take(path)
        self._num_tokens += len(row)

    def _take(self, slots: IntArray) -> None:
        self.slots.append(slots)
        self._num_slots += len(slots)


def bucket(num: int, sizes: Sequence[int]) -> int | None:
    """The smallest size that has room."""
    return next((size for size in sizes if size >= num), None)
