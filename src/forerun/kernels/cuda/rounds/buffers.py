"""What a round reads and writes on the device; addresses stay."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
import triton
from torch import Tensor

from forerun.kernels.base import ChainNoise
from forerun.kernels.cuda.batch import CudaBatch
from forerun.kernels.cuda.drawing import Drawing
from forerun.kernels.cuda.heads.given import NUM_TURNS, noise_words
from forerun.kernels.cuda.passes.asked import Asked
from forerun.kernels.cuda.passes.inputs import Inputs
from forerun.kernels.cuda.rounds.kernels import (
    GUESSES_AT,
    NUM_GUESSES,
    NUM_PARAMS,
    NUM_TAKEN,
    ROW_AT,
    TEMPERATURE,
    accept_guesses,
    place_chain,
)
from forerun.types import IntArray

DRAFT: Final = 0
TARGET: Final = 1


@dataclass(frozen=True)
class Follow:
    """What the host says of a round before it knows how many guesses were accepted."""

    guesses: Sequence[int]  # that are being verified
    rows: tuple[int, int]  # of the draft's and the target's cache, if none is accepted
    slots: tuple[IntArray, IntArray]  # of all rows that may be needed
    noise: ChainNoise  # of the draft, if none is accepted


@dataclass(frozen=True)
class Room:
    """For one of the two caches."""

    one: Asked  # a pass over it
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

    def batch(self, idx: int, num_tokens: int, num_wanted: int) -> CudaBatch:
        """One that the device fills by itself."""
        room = self.rooms[idx]
        batch = copy(room.one.batch)
        inputs = Inputs(num_tokens, num_wanted, batch.shape.head_dim, 1, self.count.device)
        inputs.key_slots = self.sent.key_slots(idx)
        inputs.wanted.copy_(torch.arange(num_tokens - num_wanted, num_tokens, dtype=torch.int32))
        batch.placed, batch.num_splits = inputs, room.num_splits
        batch.tapped, batch.recording = [], None
        return batch

    def accept(self) -> None:
        drawn = self.drawing.drawn
        accept_guesses[(1,)](self.sent.params, drawn, self._taken, self.count, NUM_TAKEN)

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
    """What the host sends before a round."""

    def __init__(self, rooms: tuple[Room, Room], device: torch.device) -> None:
        self._keys = [_Sent(1 + room.num_keys, device) for room in rooms]
        self._dump_slots = [room.one.store.dump_slot for room in rooms]
        self._words = _Sent(2 * NUM_PARAMS, device)
        self.params = self._words.device.view(torch.int64)

    def key_slots(self, idx: int) -> Tensor:
        return self._keys[idx].device

    def send(self, follow: Follow) -> None:
        words = np.zeros(NUM_PARAMS, np.int64)
        words[NUM_GUESSES.value] = len(follow.guesses)
        words[ROW_AT.value : ROW_AT.value + 2] = follow.rows
        words[TEMPERATURE.value : TEMPERATURE.value + 3] = noise_words(follow.noise)
        words[GUESSES_AT.value : GUESSES_AT.value + len(follow.guesses)] = follow.guesses
        self._words.send(words.view(np.int32))
        for sent, slots, dump_slot in zip(self._keys, follow.slots, self._dump_slots, strict=True):
            sent.send(slots, first=dump_slot)

    def dump_all(self) -> None:
        """Whatever runs now works on dump slots."""
        for sent, dump_slot in zip(self._keys, self._dump_slots, strict=True):
            sent.device.fill_(dump_slot)


class _Sent:
    """Words that travel at once; the host's side has turns."""

    def __init__(self, num_words: int, device: torch.device) -> None:
        self.device = torch.zeros(num_words, dtype=torch.int32, device=device)
        is_pinned = device.type == "cuda"
        self._hosts = [
            torch.zeros(num_words, dtype=torch.int32, pin_memory=is_pinned)
            for _ in range(NUM_TURNS)
        ]
        self._turn = 0

    def send(self, words: npt.NDArray[Any], first: int | None = None) -> None:
        """`first`, if given, and then the words."""
        self._turn = (self._turn + 1) % NUM_TURNS
        host = self._hosts[self._turn]
        at = 0 if first is None else 1
        numbers = host.numpy()
        if first is not None:
            numbers[0] = first
        numbers[at : at + len(words)] = words
        end = at + len(words)
        self.device[:end].copy_(host[:end], non_blocking=True)


def _turns(room: Room, device: torch.device) -> Tensor:
    """[rows, head_dim]: cos and sin of every row that there is room for."""
    turns = room.one.batch.rope.rotations(np.arange(room.num_keys))
    return torch.from_numpy(np.ascontiguousarray(turns)).to(device)
