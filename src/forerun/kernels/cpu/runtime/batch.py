"""A plan as the compiled operations read it."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from copy import copy
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from forerun.kernels.base import AttentionShape, ChainNoise
from forerun.kernels.cpu.attention.head_group import MAX_HEADS, MAX_TOKENS
from forerun.kernels.cpu.codegen.lanes import padded
from forerun.kernels.cpu.runtime.program import Program, aligned_zeros
from forerun.kernels.plan import Plan, PlanRow
from forerun.types import FloatArray, IntArray

F32 = npt.NDArray[np.float32]


class RopeTable:
    """cos and sin of position × frequency, each position computed once and alone."""

    def __init__(self, inv_freq: FloatArray) -> None:
        self._inv_freq = inv_freq
        self._rotations: dict[int, F32] = {}

    def rotations(self, positions: IntArray) -> list[F32]:
        """[T, 2, head_dim / 2]: cos, then sin."""
        return [self._rotation(position) for position in positions.tolist()]

    def _rotation(self, position: int) -> F32:
        """[2, head_dim / 2]"""
        if position not in self._rotations:
            angles = position * self._inv_freq
            self._rotations[position] = np.array([np.cos(angles), np.sin(angles)], np.float32)
        return self._rotations[position]


class CpuBatch:
    """The arrays of one pass, made when they are asked for: where the pass was recorded, what it
    stands for moves into the arrays of another batch, whose addresses stay."""

    def __init__(
        self,
        plan: Plan,
        shape: AttentionShape,
        rope: RopeTable,
        new_program: Callable[[], Program],
        given: Sequence[FloatArray] = (),
        noise: ChainNoise | None = None,
    ) -> None:
        self.shape = shape
        self.size = len(plan), len(plan.wanted)  # what a recording depends on
        self.num_embeddings = 0  # rows of the table that tokens are looked up in, once they were
        self.taps: tuple[F32, ...] = ()  # once it has run
        self._plan = plan
        self._rope = rope
        self._new_program = new_program
        self._given = given
        self._noise = noise
        self._runs = [run for row in plan.rows for run in _runs(row)]
        slots = [run.slots for run in self._runs]  # `keys` has their addresses in it
        self._slots = np.ascontiguousarray(slots[0]) if len(slots) == 1 else np.concatenate(slots)
        longest = max([run.lengths[-1] for run in self._runs])
        self.max_keys = min(longest, shape.window or longest)

    @cached_property
    def heads(self) -> tuple[int, int, int]:
        return self.shape.num_heads, self.shape.num_kv_heads, self.shape.head_dim

    @cached_property
    def program(self) -> Program:
        return self._new_program()

    @cached_property
    def tokens(self) -> IntArray:
        """[T]: a copy, as all that follow, since another batch moves in here."""
        return self._plan.tokens.copy()

    @cached_property
    def write_slots(self) -> IntArray:
        return self._plan.write_slots.copy()  # [T]

    @cached_property
    def wanted(self) -> IntArray:
        return self._plan.wanted.copy()  # [R]

    @cached_property
    def rotations(self) -> F32:
        return np.array(self._rope.rotations(self._plan.positions))  # [T, 2, head_dim / 2]

    @cached_property
    def keys(self) -> IntArray:
        """[T, 2]: where each token's slots lie in logical order, and how many they are"""
        return np.array(self._new_keys(), np.int64)

    def _new_keys(self) -> list[tuple[int, int]]:
        """Without the keys that a sliding window hides."""
        keys, window = _keys(self._runs, _address(self._slots)), self.shape.window
        if window is None:
            return keys
        hidden = (max(0, num - window) for _, num in keys)
        return [(at + 8 * skip, num - skip) for (at, num), skip in zip(keys, hidden, strict=True)]

    @cached_property
    def given_widths(self) -> list[int]:
        return [each.shape[1] for each in self._given]

    @cached_property
    def given(self) -> list[F32]:
        return [_padded(each) for each in self._given]  # [T, padded width]

    @cached_property
    def noise(self) -> IntArray:
        return np.array(self._new_noise(), np.int64)

    def _new_noise(self) -> tuple[int, int, int]:
        return _NO_NOISE if self._noise is None else _as_ints(self._noise)

    def settle(self) -> None:
        """Make all arrays, and let go of what leads to the cache and the kernel set."""
        for name in _MADE:
            getattr(self, name)
        del self._plan, self._given, self._runs, self._new_program

    def check(self, tokens: IntArray) -> None:
        if not self.num_embeddings:  # a pass over what it was given
            return
        ids = tokens.tolist()  # of a few tokens, a list is looked through faster than an array
        assert min(ids) >= 0, ids
        assert max(ids) < self.num_embeddings, (ids, self.num_embeddings)

    def take_in(self, other: CpuBatch) -> None:
        """Become `other`, which has as many tokens."""
        plan = other._plan
        self.check(plan.tokens)
        self.tokens[:] = plan.tokens
        self.write_slots[:] = plan.write_slots
        self.wanted[:] = plan.wanted
        self.rotations[:] = other._rope.rotations(plan.positions)
        self.keys[:] = other._new_keys()
        self._slots, self.max_keys = other._slots, other.max_keys
        self.noise[:] = other._new_noise()
        for mine, width, theirs in zip(self.given, self.given_widths, other._given, strict=True):
            mine[:, :width] = theirs

    def part(self, first: int, last: int) -> CpuBatch:
        """Some of its tokens; the arrays are views."""
        for name in _MADE:
            getattr(self, name)
        part, chosen = copy(self), slice(first, last)
        for name in _ADDRESSES:
            part.__dict__.pop(name, None)
        part.tokens, part.write_slots = self.tokens[chosen], self.write_slots[chosen]
        part.rotations, part.keys = self.rotations[chosen], self.keys[chosen]
        part.wanted = self.wanted[(first <= self.wanted) & (self.wanted < last)] - first
        part.given = [each[chosen] for each in self.given]
        part.size = len(part.tokens), len(part.wanted)
        return part

    @property
    def scratch_bytes(self) -> int:
        """What attention needs: scores, their sums, and mixed values, for the heads together."""
        row_len = padded(self.max_keys) + 1 + padded(self.shape.head_dim)
        return 4 * MAX_HEADS * row_len * min(MAX_TOKENS, self.size[0])

    @cached_property
    def keys_address(self) -> int:
        return int(self.keys.ctypes.data)

    @cached_property
    def rotations_address(self) -> int:
        return int(self.rotations.ctypes.data)

    @cached_property
    def write_slots_address(self) -> int:
        return int(self.write_slots.ctypes.data)


_ADDRESSES: Final = ("keys_address", "rotations_address", "write_slots_address")
_MADE: Final = (
    *("program", "tokens", "write_slots", "wanted", "rotations", "keys"),
    *("given_widths", "given", "noise"),
)


def _address(array: IntArray) -> int:
    """`array.ctypes` makes an object for it."""
    found: int = array.__array_interface__["data"][0]
    return found


def _as_ints(noise: ChainNoise) -> tuple[int, int, int]:
    """Temperature (the bits of a double), key and position."""
    (temperature,) = struct.unpack("<q", struct.pack("<d", noise.temperature))
    key = noise.key - (noise.key >> 63 << 64)  # the same 64 bits, signed
    return temperature, key, noise.position


_NO_NOISE: Final = _as_ints(ChainNoise())


def _padded(rows: FloatArray) -> F32:
    num_rows, width = rows.shape
    found = aligned_zeros(num_rows, padded(width))
    found[:, :width] = rows
    return found


class Run(NamedTuple):
    """Key slots in logical order; each of one or more tokens sees so many of them."""

    slots: IntArray
    lengths: Sequence[int]


def _runs(row: PlanRow) -> list[Run]:
    """Of the tokens that run: one for all in a chain, where each sees one key more than the token
    before it; one each in a tree."""
    chosen = range(row.num_written, len(row.span))
    if row.span.tree.is_chain:
        first = row.span.start + 1
        return [Run(row.slots, range(first + chosen.start, first + chosen.stop))]
    paths = [np.concatenate((row.context, row.ancestors(idx))) for idx in chosen]
    return [Run(path, (len(path),)) for path in paths]


def _keys(runs: Sequence[Run], address: int) -> list[tuple[int, int]]:
    """(address, number) of each token's key slots, where the runs lie one behind the other."""
    keys: list[tuple[int, int]] = []
    for run in runs:
        keys += [(address, length) for length in run.lengths]
        address += run.slots.nbytes
    return keys
