"""A plan as the kernels read it: integers and rotations in one buffer, which travels at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
import torch

from forerun.kernels.base import AttentionShape
from forerun.kernels.cuda.recording import Recording
from forerun.kernels.plan import Plan, PlanRow
from forerun.types import FloatArray, IntArray

F32 = npt.NDArray[np.float32]
I32 = npt.NDArray[np.int32]

_CHUNK_LEN: Final = 512  # positions computed together, always the same ones
_SENT: Final = 512  # words; a multiple of it is sent
NUM_TURNS: Final = 3
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

    Its addresses stay, so a recorded pass reads whatever batch was sent last. The host's side is
    there `NUM_TURNS` times: while a pass is under way, and one that was begun ahead of its turn and
    is not wanted any more, a third one can be written down.
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
        self._num_words = self._keys_at + num_key_slots
        self._device = torch.empty(self._num_words, dtype=torch.int32, device=device)
        for idx, name in enumerate(_PER_TOKEN):
            setattr(self, name, self._device[idx * num_tokens : (idx + 1) * num_tokens])
        self.wanted = self._device[head - num_wanted : head]
        rotations = self._device[self._rotations_at : self._keys_at]
        self.rotations = rotations.view(torch.float32).view(num_tokens, head_dim)
        self.key_slots = self._device[self._keys_at :]
        self._sides = [self._new_side(head_dim) for _ in range(NUM_TURNS)]
        self._turn = 0

    tokens: torch.Tensor  # [T]; -1 - r: the one that was drawn last for row r
    slots: torch.Tensor  # [T] where its key and value go
    starts: torch.Tensor  # [T] how many of its keys are from earlier passes, at least
    firsts: torch.Tensor  # [T] where, among the key slots, those of its committed keys begin
    lengths: torch.Tensor  # [T] how many they are
    own_firsts: torch.Tensor  # [T] where those of its own branch begin
    num_keys: torch.Tensor  # [T]

    def _new_side(self, head_dim: int) -> _HostSide:
        is_pinned = self._device.device.type == "cuda"
        host = torch.empty(self._num_words, dtype=torch.int32, pin_memory=is_pinned)
        words: I32 = host.numpy()
        num_ints = len(_PER_TOKEN) * self.num_tokens
        floats = words[self._rotations_at : self._keys_at].view(np.float32)
        return _HostSide(
            host,
            words[:num_ints].reshape(len(_PER_TOKEN), self.num_tokens),
            words[num_ints : num_ints + self.num_wanted],
            floats.reshape(self.num_tokens, head_dim),
            words[self._keys_at :],
        )

    def send(self, batch: CudaBatch, dump_slot: int) -> None:
        """What is not filled by the batch reads and writes the dump slot, and nobody asks."""
        self._turn = (self._turn + 1) % NUM_TURNS
        side = self._sides[self._turn]
        num_real, num_wanted, keys = len(batch.plan), len(batch.plan.wanted), batch.keys
        side.per_token[:, :num_real] = batch.per_token
        side.wanted[:num_wanted] = batch.plan.wanted
        side.rotations[:num_real] = batch.rotations
        if num_real < self.num_tokens or num_wanted < self.num_wanted:
            fill = np.array([0, dump_slot, 0, len(keys), 1, 0, 1])
            side.per_token[:, num_real:] = fill[:, None]
            side.wanted[num_wanted:] = 0
            side.rotations[num_real:] = 0
        side.keys[: len(keys)] = keys
        side.keys[len(keys)] = dump_slot
        last = min(self._num_words, -(-(self._keys_at + len(keys) + 1) // _SENT) * _SENT)
        if last not in side.parts:
            side.parts[last] = self._device[:last], side.host[:last]
        device, host = side.parts[last]
        device.copy_(host, non_blocking=True)


@dataclass(frozen=True)
class _HostSide:
    """One turn's words, and views of them."""

    host: torch.Tensor
    per_token: I32
    wanted: I32
    rotations: F32
    keys: I32
    # what is copied to what, by its length: a slice takes torch longer than its copy
    parts: dict[int, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)


@dataclass(eq=False)
class CudaBatch:
    plan: Plan
    shape: AttentionShape
    rope: RopeTable
    device: torch.device
    placed: Inputs | None = None  # None: it has not been sent
    num_embeddings: int | None = None
    num_splits: int | None = None  # of keys; None: as many as its own keys need
    recording: Recording | None = None  # while it is recorded

    @cached_property
    def _integers(self) -> tuple[I32, IntArray]:
        plan = self.plan
        per_token = np.empty((len(_PER_TOKEN), len(plan)), np.int32)
        keys = _Keys(per_token[2:])
        for row in plan.rows:
            keys.add(row)
        per_token[0], per_token[1] = plan.tokens, plan.write_slots
        return per_token, np.concatenate(keys.slots)

    @property
    def per_token(self) -> I32:
        """[7, T]"""
        return self._integers[0]

    @property
    def keys(self) -> IntArray:
        """Slots of keys, in logical order, request after request."""
        return self._integers[1]

    @property
    def rotations(self) -> F32:
        """[T, head_dim]"""
        return self.rope.rotations(self.plan.positions)

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
