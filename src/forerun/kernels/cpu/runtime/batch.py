"""A plan as the compiled operations read it."""

from __future__ import annotations

from collections.abc import Sequence
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

    def rotations(self, positions: IntArray) -> F32:
        """[T, 2, head_dim / 2]: cos, then sin."""
        return np.concatenate([self._rotation(position) for position in positions.tolist()])

    def _rotation(self, position: int) -> F32:
        """[1, 2, head_dim / 2]"""
        if position not in self._rotations:
            angles = position * self._inv_freq
            self._rotations[position] = np.array([[np.cos(angles), np.sin(angles)]], np.float32)
        return self._rotations[position]


class CpuBatch:
    """The arrays of one pass. Their addresses stay when another batch's contents move in."""

    def __init__(
        self,
        plan: Plan,
        shape: AttentionShape,
        rope: RopeTable,
        program: Program,
        given: Sequence[FloatArray] = (),
        noise: ChainNoise | None = None,
    ) -> None:
        self.shape = shape
        self.heads = (shape.num_heads, shape.num_kv_heads, shape.head_dim)
        self.program = program
        self.num_embeddings = 0  # rows of the table that tokens are looked up in, once they were
        # Copies: another batch moves in here, and a plan may be run again.
        self.tokens = plan.tokens.copy()  # [T]
        self.write_slots = plan.write_slots.copy()  # [T]
        self.wanted = plan.wanted.copy()  # [R]
        self.rotations = rope.rotations(plan.positions)  # [T, 2, head_dim / 2]
        runs = [run for row in plan.rows for run in _runs(row)]
        self._slots = np.concatenate([run.slots for run in runs])  # `keys` has addresses in it
        # [T, 2]: where each token's slots lie in logical order, and how many they are
        self.keys = self._seen(_keys(runs, self._slots.ctypes.data))
        longest = max(run.lengths[-1] for run in runs)
        self.max_keys = min(longest, shape.window or longest)
        self.given_widths = [each.shape[1] for each in given]
        self.given = [_padded(each) for each in given]  # [T, padded width]
        self.noise = _NO_NOISE.copy() if noise is None else _as_ints(noise)

    def check(self, tokens: IntArray) -> None:
        if not self.num_embeddings:  # a pass over what it was given
            return
        ids = tokens.tolist()  # of a few tokens, a list is looked through faster than an array
        assert min(ids) >= 0, ids
        assert max(ids) < self.num_embeddings, (ids, self.num_embeddings)

    def take_in(self, other: CpuBatch) -> None:
        """Become `other`, which has as many tokens."""
        self.check(other.tokens)
        self.tokens[:] = other.tokens
        self.write_slots[:] = other.write_slots
        self.wanted[:] = other.wanted
        self.rotations[:] = other.rotations
        self.keys[:] = other.keys
        self._slots, self.max_keys = other._slots, other.max_keys
        self.noise[:] = other.noise
        for mine, theirs in zip(self.given, other.given, strict=True):
            mine[:] = theirs

    def part(self, first: int, last: int) -> CpuBatch:
        """Some of its tokens; the arrays are views."""
        part, chosen = copy(self), slice(first, last)
        for name in _ADDRESSES:
            part.__dict__.pop(name, None)
        part.tokens, part.write_slots = self.tokens[chosen], self.write_slots[chosen]
        part.rotations, part.keys = self.rotations[chosen], self.keys[chosen]
        part.wanted = self.wanted[(first <= self.wanted) & (self.wanted < last)] - first
        part.given = [each[chosen] for each in self.given]
        return part

    @property
    def scratch_bytes(self) -> int:
        """What attention needs: scores, their sums, and mixed values, for the heads together."""
        row_len = padded(self.max_keys) + 1 + padded(self.shape.head_dim)
        return 4 * MAX_HEADS * row_len * min(MAX_TOKENS, len(self.tokens))

    @cached_property
    def keys_address(self) -> int:
        return int(self.keys.ctypes.data)

    @cached_property
    def rotations_address(self) -> int:
        return int(self.rotations.ctypes.data)

    @cached_property
    def write_slots_address(self) -> int:
        return int(self.write_slots.ctypes.data)

    def _seen(self, keys: IntArray) -> IntArray:
        """Without the keys that a sliding window hides."""
        if self.shape.window is None:
            return keys
        hidden = np.maximum(0, keys[:, 1] - self.shape.window)
        return np.ascontiguousarray(
            np.stack((keys[:, 0] + 8 * hidden, keys[:, 1] - hidden), axis=1)
        )


_ADDRESSES: Final = ("keys_address", "rotations_address", "write_slots_address")


def _as_ints(noise: ChainNoise) -> IntArray:
    """Temperature (the bits of a double), key and position: [3]"""
    temperature = np.float64(noise.temperature).view(np.int64)
    key = noise.key - (noise.key >> 63 << 64)  # the same 64 bits, signed
    return np.array([temperature, key, noise.position], np.int64)


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


def _keys(runs: Sequence[Run], address: int) -> IntArray:
    """(address, number) of each token's key slots, where the runs lie one behind the other."""
    keys: list[tuple[int, int]] = []
    for run in runs:
        keys += [(address, length) for length in run.lengths]
        address += run.slots.nbytes
    return np.array(keys, np.int64)
