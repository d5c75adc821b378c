"""The K formats: blocks of 256 weights with scales for groups of 32 or 16.

Q4_K   d m | 12 bytes: 6-bit scales and minima of 8 groups | 128 bytes of nibbles
Q5_K   as Q4_K with 32 bytes of fifth bits before the nibbles
Q6_K   128 bytes of low nibbles | 64 bytes of high bit pairs | 16 int8 scales | d
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from forerun.kernels.cpu.codegen.lanes import (
    F32,
    I8,
    I32,
    I64,
    Emitter,
    Value,
    constant,
    i64,
    vector,
)
from forerun.kernels.cpu.products.decoders import BYTES16, Decoder, Group, nibbles, wide_nibbles


@dataclass(frozen=True)
class Q45K:
    """Q4_K and Q5_K: w = d·scale·q − m·minimum, in chunks of 64 weights."""

    block_bytes: int
    has_fifth_bits: bool
    block_len: int = 256
    num_chunks: int = 4

    def chunk(self, e: Emitter, block: Value, idx: Value) -> list[Group]:
        b = e.builder
        halves, shift = e.halves(block), b.mul(idx, i64(16))  # two groups of 32 in a chunk
        scales, minima = (_low_bytes(e, b.lshr(bytes8, shift)) for bytes8 in group_scales(e, block))
        scales = b.fmul(e.shuffle(halves, halves, [0] * 4), scales)
        minima = b.fneg(b.fmul(e.shuffle(halves, halves, [1] * 4), minima))
        first = e.offset(block, self.block_bytes - 128)
        start = b.add(first, b.mul(idx, i64(32)))
        packed = [e.load(e.offset(start, at), BYTES16) for at in (0, 16)]
        groups = []
        for part in (0, 1):  # low nibbles are the first 32 weights, high ones the next
            d, c = e.spread(scales, part), e.spread(minima, part)
            for at, both in enumerate(packed):
                if self.has_fifth_bits:
                    group_idx = b.add(b.mul(idx, i64(2)), i64(part))
                    fifths = e.load(e.offset(block, 16 + 16 * at), BYTES16)
                    quants = b.or_(nibbles(e, both)[part], fifth_bits(e, fifths, group_idx))
                else:
                    quants = wide_nibbles(e, both)[part]
                groups.append(Group(e.from_integers(quants), d, c))
        return groups


def _low_bytes(e: Emitter, packed: Value) -> Value:
    """The lowest four bytes of a 64-bit integer, as floats."""
    low = e.builder.trunc(packed, I32)
    return e.from_integers(e.builder.bitcast(low, vector(I8, 4)))


def group_scales(e: Emitter, block: Value) -> tuple[Value, Value]:
    """Eight 6-bit scales and eight minima, as the bytes of two 64-bit integers.

    Groups 0 … 3 sit in the low six bits of bytes 0 … 3 and 4 … 7; groups 4 … 7 take their low
    four bits from bytes 8 … 11 and their high two from what the first eight bytes leave over.
    """
    b = e.builder
    first, second, third = (b.zext(e.load(e.offset(block, at), I32), I64) for at in (4, 8, 12))

    def joined(low: Value, four: Value) -> Value:
        high = b.or_(four, b.and_(b.lshr(low, i64(2)), i64(0x30303030)))
        return b.or_(b.and_(low, i64(0x3F3F3F3F)), b.shl(high, i64(32)))

    low_four = b.and_(third, i64(0x0F0F0F0F))
    high_four = b.and_(b.lshr(third, i64(4)), i64(0x0F0F0F0F))
    return joined(first, low_four), joined(second, high_four)


def byte_of(e: Emitter, packed: Value, idx: Value) -> Value:
    """Byte `idx` of a 64-bit integer, as int32."""
    b = e.builder
    return b.trunc(b.and_(b.lshr(packed, b.mul(idx, i64(8))), i64(0xFF)), I32)


def fifth_bits(e: Emitter, packed: Value, group_idx: Value) -> Value:
    """Bit `group_idx` of each byte, as 0 or 16: no shifts of bytes, which x86 has not."""
    b, kind, count = e.builder, packed.type, packed.type.count
    mask = e.splat(b.trunc(b.shl(i64(1), group_idx), I8), count)
    is_clear = b.icmp_unsigned("==", b.and_(packed, mask), kind([0] * count))
    return b.select(is_clear, kind([0] * count), kind([16] * count))


@dataclass(frozen=True)
class Q6K:
    """w = d·scale·(q − 32), in chunks of 128 weights; every 16 weights have a scale."""

    block_bytes: int = 210
    block_len: int = 256
    num_chunks: int = 2

    def chunk(self, e: Emitter, block: Value, idx: Value) -> list[Group]:
        b = e.builder
        low_start = b.add(block, b.mul(idx, i64(64)))
        high_start = b.add(e.offset(block, 128), b.mul(idx, i64(32)))
        scale_start = b.add(e.offset(block, 192), b.mul(idx, i64(8)))
        low = [nibbles(e, e.load(e.offset(low_start, 16 * at), BYTES16)) for at in range(4)]
        high = [e.load(e.offset(high_start, 16 * at), BYTES16) for at in range(2)]
        halves = e.halves(e.offset(block, 202))  # d is a block's last two bytes
        d = e.shuffle(halves, halves, [3] * 8)
        scales = b.sext(e.load(scale_start, vector(I8, 8)), vector(I32, 8))
        scales = b.fmul(d, b.sitofp(scales, vector(F32, 8)))
        groups = []
        for g in range(8):
            pair = b.lshr(high[g % 2], constant(I8, [g // 2 * 2] * 16))
            two = b.shl(b.and_(pair, constant(I8, [3] * 16)), constant(I8, [4] * 16))
            quants = b.or_(low[g % 4][g // 4], two)
            scale = e.spread(scales, g)
            groups.append(Group(e.from_integers(quants), scale, e.times(-32.0, scale)))
        return groups


K_DECODERS: Final[dict[str, Decoder]] = {
    "Q4_K": Q45K(144, has_fifth_bits=False),
    "Q5_K": Q45K(176, has_fifth_bits=True),
    "Q6_K": Q6K(),
}
