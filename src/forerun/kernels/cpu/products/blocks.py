"""Access to a block of packed weights: of several outputs, interleaved, or of one output."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from llvmlite import ir

from forerun.kernels.cpu.codegen.lanes import (
    F16,
    F32,
    I8,
    I32,
    Emitter,
    Value,
    constant,
    i64,
    vector,
)

BYTES16: Final = vector(I8, 16)
Scales = list[tuple[Value, Value]]  # d·scale and m·minimum, of each of a chunk's two groups


class Blocks(Protocol):
    """Block number i of one or more outputs; `at` is an offset in a block, in bytes."""

    def moved(self, num_bytes: Value) -> Blocks:
        """Return the same blocks, with `num_bytes` added to every offset."""

    def bytes16(self, at: int) -> list[Value]:
        """Load 16 bytes per output: four of every output in each of four vectors, or one vector."""

    def words(self, at: int) -> Value:
        """Load an int32 per output."""

    def halves(self, at: int) -> Value:
        """Load a float16 per output, as floats."""

    def two_halves(self, at: int) -> tuple[Value, Value]:
        """Load the two float16 at `at` and `at` + 2 per output, as floats."""

    def group_scales(self, idx: Value) -> Scales:
        """Return the scales and minima of the two groups in chunk `idx` of Q4_K and Q5_K."""


@dataclass(frozen=True)
class TiledBlocks:
    """Blocks of a tile of interleaved weights (`weights/interleave.py`)."""

    e: Emitter
    address: Value
    num_outputs: int

    def moved(self, num_bytes: Value) -> TiledBlocks:
        b = self.e.builder
        return replace(self, address=b.add(self.address, b.mul(num_bytes, i64(self.num_outputs))))

    def bytes16(self, at: int) -> list[Value]:
        return [self._plane(I8, 4, at + 4 * idx) for idx in range(4)]

    def words(self, at: int) -> Value:
        return self._plane(I32, 1, at)

    def halves(self, at: int) -> Value:
        return self.e.builder.fpext(self._plane(F16, 1, at), vector(F32, self.num_outputs))

    def two_halves(self, at: int) -> tuple[Value, Value]:
        return self.halves(at), self.halves(at + 2)

    def group_scales(self, idx: Value) -> Scales:
        words = [self.words(at) for at in (4, 8, 12)]
        return _group_scales(self.e, self.two_halves(0), words, idx)

    def _plane(self, kind: Any, count: int, at: int) -> Value:
        start = self.e.offset(self.address, at * self.num_outputs)
        return self.e.load(start, vector(kind, count * self.num_outputs))


@dataclass(frozen=True)
class FileBlock(TiledBlocks):
    """A block of one output, as the file has it: the same layout as a tile of one output."""

    num_outputs: int = 1

    def bytes16(self, at: int) -> list[Value]:
        return [self._plane(I8, 16, at)]


def _group_scales(
    e: Emitter, factors: tuple[Value, Value], head: list[Value], idx: Value
) -> Scales:
    """Unpack the 6-bit scales and minima of two groups from three int32 per output, one in a lane.

    Groups 0 … 3 are the low six bits of bytes 0 … 3 and 4 … 7. Groups 4 … 7 have their low four
    bits in bytes 8 … 11, and their high two in the high two bits of the first eight bytes.
    """
    b, kind = e.builder, head[0].type

    def all_lanes(value: int) -> Value:
        return constant(I32, [value] * kind.count)

    is_first = b.icmp_signed("<", idx, i64(2))  # groups 0 … 3
    words = []
    for word, shift in ((head[0], 0), (head[1], 4)):
        fours = b.and_(b.lshr(head[2], all_lanes(shift)), all_lanes(0x0F0F0F0F))
        upper = b.and_(b.lshr(word, all_lanes(2)), all_lanes(0x30303030))
        lower = b.and_(word, all_lanes(0x3F3F3F3F))
        words.append(b.select(is_first, lower, b.or_(fours, upper)))
    scales = []
    for part in (0, 1):
        bytes_ = [_byte(e, word, idx, part) for word in words]
        scale, least = (b.fmul(f, byte) for f, byte in zip(factors, bytes_, strict=True))
        scales.append((scale, least))
    return scales


def _byte(e: Emitter, words: Value, idx: Value, part: int) -> Value:
    """Return byte 2·(idx mod 2) + part of each int32, that of group 2·idx + part, as floats."""
    b, count = e.builder, words.type.count
    at = 16 * (idx.constant & 1) + 8 * part if isinstance(idx, ir.Constant) else 0
    if at and e.machine.instructions.is_signed:  # ARM's conversion divides, which saves the shift
        return e.from_fixed(b.and_(words, constant(I32, [0xFF << at] * count)), at)
    place = b.add(b.mul(b.and_(idx, i64(1)), i64(16)), i64(8 * part))
    shift = e.splat(b.trunc(place, I32), count)
    return e.from_integers(b.and_(b.lshr(words, shift), constant(I32, [0xFF] * count)))
