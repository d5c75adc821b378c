"""Packed weights of four outputs as small integers, for integer dot products.

A chunk of a block yields runs of 32 or 16 weights with one scale: per output one or two vectors
of 16 int8, and vectors over the four outputs of the scale d and the constant c: w = q·d + c.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from forerun.kernels.cpu.decoders import BYTES16, nibbles
from forerun.kernels.cpu.k_decoders import byte_of, fifth_bits, group_scales
from forerun.kernels.cpu.lanes import F16, F32, I8, I32, Emitter, Value, constant, i64, vector

NUM_OUTPUTS: Final = 4


@dataclass(frozen=True)
class Run:
    quants: list[list[Value]]  # [output][1 or 2]: 16 int8 each
    d: Value  # 4 floats
    c: Value | None = None  # 4 floats


ChunkOfFour = Callable[[Emitter, list[Value], Value], list[Run]]  # blocks' addresses, chunk index


def _halves(e: Emitter, blocks: list[Value], at: int) -> Value:
    """The float16 at byte `at` of each block."""
    values = vector(F16, NUM_OUTPUTS)(None)
    for lane, block in enumerate(blocks):
        half = e.load(e.offset(block, at), F16)
        values = e.builder.insert_element(values, half, I32(lane))
    return e.builder.fpext(values, vector(F32, NUM_OUTPUTS))


def _floats(e: Emitter, integers: list[Value]) -> Value:
    values = vector(I32, NUM_OUTPUTS)(None)
    for lane, integer in enumerate(integers):
        values = e.builder.insert_element(values, integer, I32(lane))
    return e.builder.sitofp(values, vector(F32, NUM_OUTPUTS))


def _quants(e: Emitter, block: Value, at: int) -> Value:
    return e.load(e.offset(block, at), BYTES16)


def q8_0(e: Emitter, blocks: list[Value], _idx: Value) -> list[Run]:
    quants = [[_quants(e, block, 2), _quants(e, block, 18)] for block in blocks]
    return [Run(quants, _halves(e, blocks, 0))]


def q4_0(e: Emitter, blocks: list[Value], _idx: Value) -> list[Run]:
    eight = constant(I8, [8] * 16)
    quants = [
        [e.builder.sub(part, eight) for part in nibbles(e, _quants(e, block, 2))]
        for block in blocks
    ]
    return [Run(quants, _halves(e, blocks, 0))]


def q4_1(e: Emitter, blocks: list[Value], _idx: Value) -> list[Run]:
    quants = [list(nibbles(e, _quants(e, block, 4))) for block in blocks]
    return [Run(quants, _halves(e, blocks, 0), _halves(e, blocks, 2))]


def _q45_k(e: Emitter, blocks: list[Value], idx: Value, nibbles_at: int) -> list[Run]:
    b = e.builder
    scales = [group_scales(e, block) for block in blocks]
    d, m = _halves(e, blocks, 0), _halves(e, blocks, 2)
    starts = [b.add(e.offset(block, nibbles_at), b.mul(idx, i64(32))) for block in blocks]
    packed = [[nibbles(e, _quants(e, start, at)) for at in (0, 16)] for start in starts]
    runs = []
    for part in (0, 1):  # low nibbles are the first 32 weights, high ones the next
        group = b.add(b.mul(idx, i64(2)), i64(part))
        scale = b.fmul(d, _floats(e, [byte_of(e, pair[0], group) for pair in scales]))
        least = b.fmul(m, _floats(e, [byte_of(e, pair[1], group) for pair in scales]))
        quants = [[half[part] for half in halves] for halves in packed]
        if nibbles_at > 16:
            quants = [
                [
                    b.or_(q, fifth_bits(e, e.offset(block, 16 + 16 * i), group))
                    for i, q in enumerate(two)
                ]
                for block, two in zip(blocks, quants, strict=True)
            ]
        runs.append(Run(quants, scale, b.fneg(least)))
    return runs


def q4_k(e: Emitter, blocks: list[Value], idx: Value) -> list[Run]:
    return _q45_k(e, blocks, idx, nibbles_at=16)


def q5_k(e: Emitter, blocks: list[Value], idx: Value) -> list[Run]:
    return _q45_k(e, blocks, idx, nibbles_at=48)


def q6_k(e: Emitter, blocks: list[Value], idx: Value) -> list[Run]:
    b = e.builder
    d = _halves(e, blocks, 208)
    starts = [b.add(block, b.mul(idx, i64(64))) for block in blocks]
    highs = [b.add(e.offset(block, 128), b.mul(idx, i64(32))) for block in blocks]
    scales = [b.add(e.offset(block, 192), b.mul(idx, i64(8))) for block in blocks]
    low = [[nibbles(e, _quants(e, start, 16 * at)) for at in range(4)] for start in starts]
    high = [[_quants(e, start, 16 * at) for at in range(2)] for start in highs]
    runs = []
    for g in range(8):
        quants = []
        for output in range(NUM_OUTPUTS):
            pair = b.lshr(high[output][g % 2], constant(I8, [g // 2 * 2] * 16))
            two = b.shl(b.and_(pair, constant(I8, [3] * 16)), constant(I8, [4] * 16))
            whole = b.or_(low[output][g % 4][g // 4], two)
            quants.append([b.sub(whole, constant(I8, [32] * 16))])
        scale = _floats(e, [b.sext(e.load(e.offset(start, g), I8), I32) for start in scales])
        runs.append(Run(quants, b.fmul(d, scale)))
    return runs


CHUNKS_OF_FOUR: Final[dict[str, ChunkOfFour]] = {
    "Q8_0": q8_0,
    "Q4_0": q4_0,
    "Q4_1": q4_1,
    "Q4_K": q4_k,
    "Q5_K": q5_k,
    "Q6_K": q6_k,
}
