"""Packed weights of several outputs, unpacked to small integers.

A chunk of a block gives runs of 32 or 16 weights that share a scale: w = (q − offset)·d + c. The
integers q are vectors of bytes; the scale d and the constant c are vectors over the outputs.

Q4_0   d | 16 bytes of nibbles: w = d·(q − 8)
Q4_1   d m | the same: w = d·q + m
Q8_0   d | 32 bytes
Q4_K   d m | 12 bytes: 6-bit scales and minima of 8 groups | 128 bytes of nibbles
Q5_K   as Q4_K with 32 bytes of fifth bits before the nibbles
Q6_K   128 bytes of low nibbles | 64 bytes of high bit pairs | 16 int8 scales | d
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from forerun.kernels.cpu.codegen.lanes import F32, I8, I32, Emitter, Value, constant, i64, vector
from forerun.kernels.cpu.products.blocks import Blocks


@dataclass(frozen=True)
class Run:
    quants: list[list[Value]]  # [output, or four weights][1 or 2 pieces of 16 weights]: bytes
    d: Value  # floats, one for each output
    c: Value | None = None
    offset: int = 0  # of unsigned bytes; with 128 they are signed bytes


Chunk = Callable[[Emitter, Blocks, Value], list[Run]]  # blocks, chunk index


def nibbles(e: Emitter, packed: Value) -> tuple[Value, Value]:
    """Return the low and the high nibbles of bytes."""
    count = packed.type.count
    low = e.builder.and_(packed, constant(I8, [0x0F] * count))
    return low, e.builder.lshr(packed, constant(I8, [4] * count))


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


def fifth_bits(e: Emitter, packed: Value, group_idx: Value) -> Value:
    """Return bit `group_idx` of each byte as 0 or 16, without byte shifts, which x86 lacks."""
    b, kind, count = e.builder, packed.type, packed.type.count
    mask = e.splat(b.trunc(b.shl(i64(1), group_idx), I8), count)
    is_clear = b.icmp_unsigned("==", b.and_(packed, mask), kind([0] * count))
    return b.select(is_clear, kind([0] * count), kind([16] * count))


def _signed_byte(e: Emitter, words: Value, idx: int) -> Value:
    """Return byte `idx` of each int32, signed, as a float."""
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


def q6_k_bytes(e: Emitter, blocks: Blocks, idx: Value) -> list[Run]:
    """Q6_K in tiles for signed bytes: 256 int8 weights | 16 int8 scales | d."""
    b, d = e.builder, blocks.halves(272)
    here, scale_bytes = (blocks.moved(b.mul(idx, i64(size))) for size in (128, 8))
    scales = [scale_bytes.words(256 + at) for at in (0, 4)]
    runs = []
    for g in range(8):
        quants = [[four] for four in here.bytes16(16 * g)]
        scale = _signed_byte(e, scales[g // 4], g % 4)
        runs.append(Run(quants, b.fmul(d, scale), offset=128))
    return runs


CHUNKS: Final[dict[str, Chunk]] = {
    "Q8_0": q8_0,
    "Q4_0": q4_0,
    "Q4_1": q4_1,
    "Q4_K": q4_k,
    "Q5_K": q5_k,
    "Q6_K": q6_k,
}
SIGNED_CHUNKS: Final = CHUNKS | {"Q6_K": q6_k_bytes}
