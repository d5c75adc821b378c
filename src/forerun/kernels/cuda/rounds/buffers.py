"""The memory that a round reads and writes on the device; its addresses never change."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import torch
import triton
from torch import Tensor

from forerun.kernels.base import ChainNoise
from forerun.kernels.cuda.batch import CudaBatch
from forerun.kernels.cuda.drawing import Drawing
from forerun.kernels.cuda.heads.given import noise_words
from forerun.kernels.cuda.host_copies import NUM_TURNS
from forerun.kernels.cuda.passes.asked import Asked
from forerun.kernels.cuda.passes.inputs import Inputs
from forerun.kernels.cuda.rounds.kernels import (
    GUESSES_AT,
    NUM_PARAMS,
    NUM_TAKEN,
    accept_guesses,
    advance,
    place_chain,
)
from forerun.types import IntArray

DRAFT: Final = 0
TARGET: Final = 1


@dataclass(frozen=True)
class Follow:
    """What the host tells a round before it knows how many guesses were accepted."""

    guesses: Sequence[int]  # that are being verified
    rows: tuple[int, int]  # next of the draft's and the target's cache, if none is accepted
    slots: tuple[IntArray, IntArray]  # of all rows that may be needed, or more
    num_rows: tuple[int, int]  # that may be needed
    noise: ChainNoise  # of the draft, if none is accepted


@dataclass(frozen=True)
class Room:
    """What a round uses of one of the two caches."""

    one: Asked  # a pass over this cache
    num_splits: int
    num_keys: int


class RoundBuffers:
    def __init__(self, rooms: tuple[Room, Room], depth: int, drawing: Drawing) -> None:
        self.rooms, self.depth, self.drawing = rooms, depth, drawing
        device = drawing.drawn.device
        self.sent = Sent(rooms, device)
        self._taken = torch.zeros(NUM_TAKEN, dtype=torch.int32, device=device)
        self.guesses = torch.zeros(NUM_TAKEN, dtype=torch.int32, device=device)
        self.count = torch.zeros(1, dtype=torch.int32, device=device)
        self._turns = [_turns(room, device) for room in rooms]
        # Keeps alive what kernels read and write: a recorded round contains these addresses.
        self.held: list[Any] = [self.sent, self._taken, self.guesses, self.count, self._turns]

    def batch(self, idx: int, num_tokens: int, num_wanted: int) -> CudaBatch:
        """Return a batch whose inputs kernels write on the device (`place`)."""
        room = self.rooms[idx]
        batch = copy(room.one.batch)
        inputs = Inputs(num_tokens, num_wanted, batch.shape.head_dim, 1, self.count.device)
        inputs.key_slots = self.sent.key_slots(idx)
        inputs.wanted.copy_(torch.arange(num_tokens - num_wanted, num_tokens, dtype=torch.int32))
        self.held.append(inputs)
        batch.placed, batch.num_splits = inputs, room.num_splits
        batch.tapped, batch.recording = [], None
        return batch

    def accept(self) -> None:
        drawn = self.drawing.drawn
        accept_guesses[(1,)](self.sent.params, drawn, self._taken, self.count, NUM_TAKEN)

    def advance(self) -> None:
        block = triton.next_power_of_2(self.depth)
        advance[(1,)](self.sent.params, self.count, self.guesses, self.depth, block)

    def place(self, idx: int, batch: CudaBatch, kind: int, offset: int = 0) -> None:
        inputs, dim = batch.inputs(), batch.shape.head_dim
        place_chain[(inputs.num_tokens,)](
            self.sent.params, self._taken, self.count, self.guesses, inputs.tokens, inputs.wanted,
            inputs.key_slots, self._turns[idx], inputs.rotations,
            self.rooms[idx].one.store.dump_slot, offset, idx, kind, self.depth,
            inputs.num_tokens, dim, triton.next_power_of_2(dim),
            triton.next_power_of_2(self.depth),
        )  # fmt: skip


class Sent:
    """What the host sends before a round, in one copy: parameters, and the slots of both caches."""

    def __init__(self, rooms: tuple[Room, Room], device: torch.device) -> None:
        self._dump_slots = [room.one.store.dump_slot for room in rooms]
        sizes = 2 * NUM_PARAMS, *(1 + room.num_keys for room in rooms)
        ends = np.cumsum((0, *sizes)).tolist()
        self._parts = [slice(*pair) for pair in pairwise(ends)]
        self._device = torch.zeros(ends[-1], dtype=torch.int32, device=device)
        self.params = self._device[self._parts[0]].view(torch.int64)
        is_pinned = device.type == "cuda"
        self._hosts = [
            torch.zeros(ends[-1], dtype=torch.int32, pin_memory=is_pinned) for _ in range(NUM_TURNS)
        ]
        self._turn = 0
        self._known: tuple[IntArray, ...] = ()  # slots that were sent last

    def key_slots(self, idx: int) -> Tensor:
        return self._device[self._parts[1 + idx]]

    def has_slots(self, follow: Follow) -> bool:
        """Whether the slots that were sent last still serve; the device computes all else."""
        pairs = zip(self._known, follow.slots, follow.num_rows, strict=False)
        return bool(self._known) and all(
            num <= len(known) and are_same(known[:num], slots[:num]) for known, slots, num in pairs
        )

    def send(self, follow: Follow) -> None:
        self._known = follow.slots
        self._turn = (self._turn + 1) % NUM_TURNS
        host = self._hosts[self._turn]
        numbers = host.numpy()
        words = numbers[self._parts[0]].view(np.int64)
        words[: GUESSES_AT.value + len(follow.guesses)] = (
            len(follow.guesses), *follow.rows, *noise_words(follow.noise), 0, 0, *follow.guesses
        )  # fmt: skip
        for part, dump_slot, slots in zip(
            self._parts[1:], self._dump_slots, follow.slots, strict=True
        ):
            numbers[part.start] = dump_slot
            numbers[part.start + 1 : part.start + 1 + len(slots)] = slots
        self._device.copy_(host, non_blocking=True)

    def dump_all(self) -> None:
        """Replace all slots by dump slots, so that a trial run changes no cache rows."""
        for idx, dump_slot in enumerate(self._dump_slots):
            self.key_slots(idx).fill_(dump_slot)


def are_same(slots: IntArray, others: IntArray) -> bool:
    """Compare as bytes, in a fraction of the time that numpy takes for a few hundred numbers."""
    return slots.tobytes() == others.tobytes()


def _turns(room: Room, device: torch.device) -> Tensor:
    """Return [rows, head_dim]: cos and sin of every row that there is room for."""
    turns = room.one.batch.rope.rotations(range(room.num_keys))
    return torch.from_numpy(np.ascontiguousarray(turns)).to(device)
