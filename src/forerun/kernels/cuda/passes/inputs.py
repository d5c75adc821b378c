"""What a pass reads: integers and rotations in one buffer, sent in one copy."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import torch

from forerun.kernels.cuda.heads.given import Given, GivenInputs
from forerun.kernels.cuda.host_copies import NUM_TURNS
from forerun.kernels.cuda.passes.columns import I32, PER_TOKEN, Columns

F32 = npt.NDArray[np.float32]

_SENT: Final = 512  # words; multiples of this are sent


class Inputs:
    """A pass's inputs on the device: room for `num_tokens` tokens, `num_wanted` of them wanted.

    Their addresses never change, so a recorded pass reads the batch that was sent last. The host
    has `NUM_TURNS` buffers to send from: while one pass runs, and another that was begun early is
    to be discarded, the inputs of a third can be written.
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
        head = len(PER_TOKEN) * num_tokens + num_wanted
        self._rotations_at = -(-head // 4) * 4
        self._keys_at = self._rotations_at + num_tokens * head_dim
        self._num_words = self._keys_at + num_key_slots
        self._device = torch.empty(self._num_words, dtype=torch.int32, device=device)
        for idx, name in enumerate(PER_TOKEN):
            setattr(self, name, self._device[idx * num_tokens : (idx + 1) * num_tokens])
        self.wanted = self._device[head - num_wanted : head]
        rotations = self._device[self._rotations_at : self._keys_at]
        self.rotations = rotations.view(torch.float32).view(num_tokens, head_dim)
        self.key_slots = self._device[self._keys_at :]
        self._head_dim = head_dim
        self._sides: list[_HostSide] = []  # created on first use
        self._turn = -1
        self.given: GivenInputs | None = None

    tokens: torch.Tensor  # [T]; -1 - r: the token that was drawn last for row r
    slots: torch.Tensor  # [T] where its key and value are written
    starts: torch.Tensor  # [T] how many of its keys are from earlier passes, at least
    firsts: torch.Tensor  # [T] where, among the key slots, its first keys begin
    lengths: torch.Tensor  # [T] how many these are: all of a chain's, in a tree the committed ones
    own_firsts: torch.Tensor  # [T] where the remaining keys begin, those of its own branch
    num_keys: torch.Tensor  # [T] all its keys

    def _new_side(self) -> _HostSide:
        is_pinned = self._device.device.type == "cuda"
        host = torch.empty(self._num_words, dtype=torch.int32, pin_memory=is_pinned)
        words: I32 = host.numpy()
        num_ints = len(PER_TOKEN) * self.num_tokens
        floats = words[self._rotations_at : self._keys_at].view(np.float32)
        return _HostSide(
            host,
            words[:num_ints].reshape(len(PER_TOKEN), self.num_tokens),
            words[num_ints : num_ints + self.num_wanted],
            floats.reshape(self.num_tokens, self._head_dim),
            words[self._keys_at :],
        )

    def send(self, columns: Columns, rotations: F32, dump_slot: int) -> None:
        """Send a batch; `rotations` are [T, head_dim]. Padding rows work on the dump slot."""
        self._turn = (self._turn + 1) % NUM_TURNS
        if self._turn == len(self._sides):
            self._sides.append(self._new_side())
        side = self._sides[self._turn]
        num_real, num_wanted, keys = columns.num_tokens, len(columns.wanted), columns.keys
        side.per_token[:, :num_real] = columns.per_token
        side.wanted[:num_wanted] = columns.wanted
        side.rotations[:num_real] = rotations
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

    def give(self, given: Given) -> None:
        """Send hidden states and noise, to memory whose addresses never change either."""
        if self.given is None:
            self.given = GivenInputs(given, self.num_tokens, self._device.device)
        self.given.send(given)

    def part(self, first: int, last: int, wanted: torch.Tensor) -> Inputs:
        """Return views of tokens `first` … `last` - 1."""
        part = copy(self)
        part.num_tokens, part.num_wanted, part.wanted = last - first, len(wanted), wanted
        for name in PER_TOKEN:
            setattr(part, name, getattr(self, name)[first:last])
        part.rotations = self.rotations[first:last]
        if self.given is not None:
            part.given = copy(self.given)
            part.given.rows = [rows[first:last] for rows in self.given.rows]
        return part


@dataclass(frozen=True)
class _HostSide:
    """A host buffer to send from, and views of its parts."""

    host: torch.Tensor
    per_token: I32
    wanted: I32
    rotations: F32
    keys: I32
    # target and source of a copy, by its length: torch takes longer to slice than to copy
    parts: dict[int, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)
