"""Packed weights of several outputs as small integers, for integer dot products.

A chunk of a block yields runs of 32 or 16 weights with one scale: vectors of bytes, and vectors
over the outputs of the scale d and the constant c: w = (q − offset)·d + c. The bytes are either
those of each output, or, turned, weights 0–3, 4–7, 8–11 and 12–15 of every output.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from forerun.kernels.cpu.codegen.lanes import (
    F16,
    F32,
    I8,
    I16,
    I32,
    Emitter,
    Value,
    constant,
    i64,
    vector,
)
from forerun.kernels.cpu.products.decoders import BYTES16, nibbles
from forerun.kernels.cpu.products.k_decoders import byte_of, fifth_bits, group_scales


@dataclass(frozen=True)
class Run:
    quants: list[list[Value]]  # [output, or four weights][1 or 2 pieces of 16 weights]: bytes
    d: Value  # floats, one for each output
    c: Value | None = None
    offset: int = 0  # of unsigned bytes; 128 stands for signed ones


class Blocks(Protocol):
    """The same block of several outputs; `at` is a place in it, in bytes."""

    def moved(self, num_bytes: Value) -> Blocks:
        """The same with every place further on."""

    def bytes16(self, at: int) -> list[Value]:
        """16 bytes of each output, or, turned, four of every output in each of four vectors."""

    def words(self, at: int) -> Value:
        """An int32 of each output."""

    def halves(self, at: int) -> Value:
        """A float16 of each output, as floats."""

    def two_halves(self, at: int) -> tuple[Value, Value]:
        """Those at `at` and behind it."""

    def group_scales(self, idx: Value) -> Scales:
        """Of the two groups in chunk `idx` of Q4_K and Q5_K."""


Scales = list[tuple[Value, Value]]  # of the two groups of a chunk: d·scale, m·minimum
Chunk = Callable[[Emitter, Blocks, Value], list[Run]]  # blocks, chunk index


def turned(e: Emitter, outputs: list[Value]) -> list[Value]:
    """Vector i has bytes 4i … 4i+3 of every output, of which 16 bytes are given.

    A quarter of the outputs is joined to one vector, of which lane j is output 4j + quarter; then
    four int32 of each lane change places between the four vectors.
    """
    words = [e.builder.bitcast(output, vector(I32, 4)) for output in outputs]
    first, second, third, fourth = (_joined(e, words[start::4]) for start in range(4))
    num_lanes = len(outputs) // 4
    low, high = (_pairing(num_lanes, places) for places in ((0, 1), (2, 3)))
    pairs = [
        (e.shuffle(first, second, half), e.shuffle(third, fourth, half)) for half in (low, high)
    ]
    return [
        e.builder.bitcast(e.shuffle(left, right, order), vector(I8, 4 * len(outputs)))
        for left, right in pairs
        for order in (_halving(num_lanes, 0), _halving(num_lanes, 2))
    ]


def _joined(e: Emitter, vectors: list[Value]) -> Value:
    while len(vectors) > 1:
        vectors = [e.concat(*vectors[at : at + 2]) for at in range(0, len(vectors), 2)]
    return vectors[0]


def _pairing(num_lanes: int, places: tuple[int, int]) -> list[int]:
    """Of each lane of four, two places of the left and of the right vector, in turns."""
    right = 4 * num_lanes
    return [
        4 * lane + place + side
        for lane in range(num_lanes)
        for place in places
        for side in (0, right)
    ]


def _halving(num_lanes: int, start: int) -> list[int]:
    """Of each lane of four, two neighbours of the left vector and two of the right one."""
    right = 4 * num_lanes
    return [
        4 * lane + start + place + side
        for lane in range(num_lanes)
        for side in (0, right)
        for place in (0, 1)
    ]


@dataclass(frozen=True)
class TiledBlocks:
    """Of weights that were interleaved when they were loaded (`weights/interleave.py`)."""

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
        return _group_scales_by_lane(self.e, self.two_halves(0), words, idx)

    def _plane(self, kind: Any, count: int, at: int) -> Value:
        start = self.e.offset(self.address, at * self.num_outputs)
        return self.e.load(start, vector(kind, count * self.num_outputs))


@dataclass(frozen=True)
class FileBlocks:
    """Of weights as the file has them: an address for each output."""

    e: Emitter
    addresses: list[Value]
    is_turned: bool

    def moved(self, num_bytes: Value) -> FileBlocks:
        add = self.e.builder.add
        return replace(self, addresses=[add(address, num_bytes) for address in self.addresses])

    def bytes16(self, at: int) -> list[Value]:
        loaded = self._loaded(at, BYTES16)
        return turned(self.e, loaded) if self.is_turned else loaded

    def words(self, at: int) -> Value:
        return _gathered(self.e, self._loaded(at, I32))

    def halves(self, at: int) -> Value:
        halves = _gathered(self.e, self._loaded(at, F16))
        return self.e.builder.fpext(halves, vector(F32, len(self.addresses)))

    def two_halves(self, at: int) -> tuple[Value, Value]:
        return _split_halves(self.e, self.words(at))

    def group_scales(self, idx: Value) -> Scales:
        if not self.is_turned:
            return _group_scales_one_by_one(self.e, self, idx)
        kind = vector(I32, len(self.addresses))
        halves, *words = (self.e.builder.bitcast(each, kind) for each in self.bytes16(0))
        return _group_scales_by_lane(self.e, _split_halves(self.e, halves), words, idx)

    def _loaded(self, at: int, kind: Any) -> list[Value]:
        return [self.e.load(self.e.offset(address, at), kind) for address in self.addresses]


def _split_halves(e: Emitter, both: Value) -> tuple[Value, Value]:
    """Two float16 in each int32, as floats."""
    b, count = e.builder, both.type.count
    low, high = (
        b.trunc(value, vector(I16, count))
        for value in (both, b.lshr(both, constant(I32, [16] * count)))
    )
    first, second = (b.bitcast(value, vector(F16, count)) for value in (low, high))
    return b.fpext(first, vector(F32, count)), b.fpext(second, vector(F32, count))


def _gathered(e: Emitter, scalars: list[Value]) -> Value:
    values = vector(scalars[0].type, len(scalars))(None)
    for lane, scalar in enumerate(scalars):
        values = e.builder.insert_element(values, scalar, I32(lane))
    return values


def _floats(e: Emitter, integers: list[Value]) -> Value:
    return e.builder.sitofp(_gathered(e, integers), vector(F32, len(integers)))


def q8_0(_e: Emitter, blocks: Blocks, _idx: Value) -> list[Run]:
    pieces = [blocks.bytes16(at) for at in (2, 18)]
    quants = [list(two) for two in zip(*pieces, strict=True)]
    return [Run(quants, blocks.halves(0), offset=128)]


def q4_0(e: Emitter, blocks: Blocks, _idx: Value) -> list[Run]:
    quants = [list(nibbles(e, packed)) for packed in blocks.bytes16(2)]
    return [Run(quants, blocks.halves(0), offset=8)]


def q4_1(e: Emitter, blocks: Blocks, _idx: Value) -> list[Run]:
    quants = [list(nibbles(e, packed)) for packed in blocks.bytes16(4)]
    return [Run(quants, *blocks.two_halves(0))]


def _q45_k(e: Emitter, blocks: Blocks, idx: Value, nibbles_at: int) -> list[Run]:
    b = e.builder
    scales = blocks.group_scales(idx)
    here = blocks.moved(b.mul(idx, i64(32)))
    pieces = [[nibbles(e, x) for x in here.bytes16(nibbles_at + at)] for at in (0, 16)]
    has_fifth = nibbles_at > 16
    fifths = [blocks.bytes16(at) for at in (16, 32)] if has_fifth else []
    runs = []
    for part in (0, 1):  # low nibbles are the first 32 weights, high ones the next
        group = b.add(b.mul(idx, i64(2)), i64(part))
        quants = [[piece[four][part] for piece in pieces] for four in range(len(pieces[0]))]
        if has_fifth:
            quants = [
                [b.or_(q, fifth_bits(e, fifths[piece][four], group)) for piece, q in enumerate(two)]
                for four, two in enumerate(quants)
            ]
        scale, least = scales[part]
        runs.append(Run(quants, scale, b.fneg(least)))
    return runs


def _group_scales_one_by_one(e: Emitter, blocks: FileBlocks, idx: Value) -> Scales:
    b, scales = e.builder, [group_scales(e, block) for block in blocks.addresses]
    factors = blocks.two_halves(0)
    found = []
    for part in (0, 1):
        group = b.add(b.mul(idx, i64(2)), i64(part))
        scale, least = (
            b.fmul(factor, _floats(e, [byte_of(e, pair[which], group) for pair in scales]))
            for which, factor in enumerate(factors)
        )
        found.append((scale, least))
    return found


def _group_scales_by_lane(
    e: Emitter, factors: tuple[Value, Value], head: list[Value], idx: Value
) -> Scales:
    """`group_scales` of all outputs at once, each in its lane, from the three int32 they lie in."""
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
        place = b.add(b.mul(b.and_(idx, i64(1)), i64(16)), i64(8 * part))
        shift = e.splat(b.trunc(place, I32), kind.count)
        scale, least = (
            b.fmul(factor, e.from_integers(b.and_(b.lshr(word, shift), all_lanes(0xFF))))
            for factor, word in zip(factors, words, strict=True)
        )
        scales.append((scale, least))
    return scales


def _signed_byte(e: Emitter, words: Value, idx: int) -> Value:
    """Byte `idx` of each int32, as a float."""
    b, count = e.builder, words.type.count
    left, right = (constant(I32, [bits] * count) for bits in (24 - 8 * idx, 24))
    return b.sitofp(b.ashr(b.shl(words, left), right), vector(F32, count))


def q4_k(e: Emitter, blocks: Blocks, idx: Value) -> list[Run]:
    return _q45_k(e, blocks, idx, nibbles_at=16)


def q5_k(e: Emitter, blocks: Blocks, idx: Value) -> list[Run]:
    return _q45_k(e, blocks, idx, nibbles_at=48)


def q6_k(e: Emitter, blocks: Blocks, idx: Value) -> list[Run]:
    b, d = e.builder, blocks.halves(208)
    lows, highs, scale_bytes = (blocks.moved(b.mul(idx, i64(size))) for size in (64, 32, 8))
    scales = [scale_bytes.words(192 + at) for at in (0, 4)]
    low = [[nibbles(e, x) for x in lows.bytes16(16 * at)] for at in range(4)]
    high = [highs.bytes16(128 + 16 * at) for at in range(2)]
    runs = []
    for g in range(8):
        quants = []
        for four, bits in enumerate(high[g % 2]):
            count = bits.type.count
            pair = b.lshr(bits, constant(I8, [g // 2 * 2] * count))
            two = b.shl(b.and_(pair, constant(I8, [3] * count)), constant(I8, [4] * count))
            quants.append([b.or_(low[g % 4][four][g // 4], two)])
        scale = _signed_byte(e, scales[g // 4], g % 4)
        runs.append(Run(quants, b.fmul(d, scale), offset=32))
    return runs


CHUNKS: Final[dict[str, Chunk]] = {
    "Q8_0": q8_0,
    "Q4_0": q4_0,
    "Q4_1": q4_1,
    "Q4_K": q4_k,
    "Q5_K": q5_k,
    "Q6_K": q6_k,
}
