"""Packed weights of four outputs as small integers, for integer dot products.

A chunk of a block yields runs of 32 or 16 weights with one scale: four times one or two vectors of
16 int8, and vectors over the four outputs of the scale d and the constant c: w = q·d + c. The four
are the outputs, or, turned, weights 0–3, 4–7, 8–11 and 12–15 of every output.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

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
from forerun.kernels.cpu.products.decoders import BYTES16, nibbles
from forerun.kernels.cpu.products.k_decoders import byte_of, fifth_bits, group_scales

NUM_OUTPUTS: Final = 4


@dataclass(frozen=True)
class Run:
    quants: list[list[Value]]  # [output, or four weights][1 or 2]: 16 int8 each
    d: Value  # 4 floats
    c: Value | None = None  # 4 floats


Arrange = Callable[[Emitter, list[Value]], list[Value]]
ChunkOfFour = Callable[  # blocks' addresses, chunk index
    [Emitter, list[Value], Value, Arrange], list[Run]
]


def by_output(_e: Emitter, outputs: list[Value]) -> list[Value]:
    """16 bytes of each output, as they were loaded."""
    return outputs


def turned(e: Emitter, outputs: list[Value]) -> list[Value]:
    """Vector i has bytes 4i … 4i+3 of every output."""
    a, b, c, d = (e.builder.bitcast(output, vector(I32, 4)) for output in outputs)
    low, high = [0, 4, 1, 5], [2, 6, 3, 7]
    pairs = [(e.shuffle(a, b, half), e.shuffle(c, d, half)) for half in (low, high)]
    return [
        e.builder.bitcast(e.shuffle(ab, cd, order), BYTES16)
        for ab, cd in pairs
        for order in ([0, 1, 4, 5], [2, 3, 6, 7])
    ]


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


def _loaded(e: Emitter, addresses: list[Value], at: int, arrange: Arrange) -> list[Value]:
    """16 bytes `at` each address."""
    return arrange(e, [e.load(e.offset(address, at), BYTES16) for address in addresses])


def q8_0(e: Emitter, blocks: list[Value], _idx: Value, arrange: Arrange) -> list[Run]:
    pieces = [_loaded(e, blocks, at, arrange) for at in (2, 18)]
    return [Run([list(two) for two in zip(*pieces, strict=True)], _halves(e, blocks, 0))]


def q4_0(e: Emitter, blocks: list[Value], _idx: Value, arrange: Arrange) -> list[Run]:
    eight = constant(I8, [8] * 16)
    quants = [
        [e.builder.sub(part, eight) for part in nibbles(e, packed)]
        for packed in _loaded(e, blocks, 2, arrange)
    ]
    return [Run(quants, _halves(e, blocks, 0))]


def q4_1(e: Emitter, blocks: list[Value], _idx: Value, arrange: Arrange) -> list[Run]:
    quants = [list(nibbles(e, packed)) for packed in _loaded(e, blocks, 4, arrange)]
    return [Run(quants, _halves(e, blocks, 0), _halves(e, blocks, 2))]


def _q45_k(
    e: Emitter, blocks: list[Value], idx: Value, arrange: Arrange, nibbles_at: int
) -> list[Run]:
    b = e.builder
    scales = [group_scales(e, block) for block in blocks]
    d, m = _halves(e, blocks, 0), _halves(e, blocks, 2)
    starts = [b.add(e.offset(block, nibbles_at), b.mul(idx, i64(32))) for block in blocks]
    pieces = [[nibbles(e, x) for x in _loaded(e, starts, at, arrange)] for at in (0, 16)]
    has_fifth = nibbles_at > 16
    fifths = [_loaded(e, blocks, at, arrange) for at in (16, 32)] if has_fifth else []
    runs = []
    for part in (0, 1):  # low nibbles are the first 32 weights, high ones the next
        group = b.add(b.mul(idx, i64(2)), i64(part))
        scale = b.fmul(d, _floats(e, [byte_of(e, pair[0], group) for pair in scales]))
        least = b.fmul(m, _floats(e, [byte_of(e, pair[1], group) for pair in scales]))
        quants = [[piece[four][part] for piece in pieces] for four in range(NUM_OUTPUTS)]
        if has_fifth:
            quants = [
                [b.or_(q, fifth_bits(e, fifths[piece][four], group)) for piece, q in enumerate(two)]
                for four, two in enumerate(quants)
            ]
        runs.append(Run(quants, scale, b.fneg(least)))
    return runs


def q4_k(e: Emitter, blocks: list[Value], idx: Value, arrange: Arrange) -> list[Run]:
    return _q45_k(e, blocks, idx, arrange, nibbles_at=16)


def q5_k(e: Emitter, blocks: list[Value], idx: Value, arrange: Arrange) -> list[Run]:
    return _q45_k(e, blocks, idx, arrange, nibbles_at=48)


def q6_k(e: Emitter, blocks: list[Value], idx: Value, arrange: Arrange) -> list[Run]:
    b = e.builder
    d = _halves(e, blocks, 208)
    starts = [b.add(block, b.mul(idx, i64(64))) for block in blocks]
    highs = [b.add(e.offset(block, 128), b.mul(idx, i64(32))) for block in blocks]
    scales = [b.add(e.offset(block, 192), b.mul(idx, i64(8))) for block in blocks]
    low = [[nibbles(e, x) for x in _loaded(e, starts, 16 * at, arrange)] for at in range(4)]
    high = [_loaded(e, highs, 16 * at, arrange) for at in range(2)]
    runs = []
    for g in range(8):
        quants = []
        for four in range(NUM_OUTPUTS):
            pair = b.lshr(high[g % 2][four], constant(I8, [g // 2 * 2] * 16))
            two = b.shl(b.and_(pair, constant(I8, [3] * 16)), constant(I8, [4] * 16))
            whole = b.or_(low[g % 4][four][g // 4], two)
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
