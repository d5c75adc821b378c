"""Activations as digits of 8 bits, for integer dot products.

    x = s · (256·d₀ + d₁)     s = max|x| / (127·256) over a block of 32 activations
    x = s · d₀                s = max|x| / 127, with one digit (`activations="int8"`)

Two digits are 15 bits below the largest of a block, and a sign. A block's record holds its digits,
32 bytes each; then s; the sum of the block; and, for each offset that makes weights unsigned, the
start of their integer sums: `first_sum` minus the offset times the sum of 256·d₀ + d₁.

Rows are in groups of up to 16, padded to a power of two; a group's records of one block lie side by
side:

    group 0   block 0: row 0, row 1 …    block 1: row 0, row 1 …    …    group 1   …
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from numba import int64, njit, void

from forerun.kernels.cpu.codegen.emitted import emitted
from forerun.kernels.cpu.codegen.lanes import (
    F32,
    I8,
    I32,
    Emitter,
    Value,
    constant,
    i64,
    power_of_two,
    vector,
)
from forerun.kernels.cpu.codegen.machine import Machine
from forerun.kernels.cpu.codegen.scalar import ROUND, ROUND_BITS

DIGIT_BITS: Final = 8
BLOCK_LEN: Final = 32
GROUP_ROWS: Final = 16
_CORRECTIONS: Final = ((128, 0), (8, 0), (32, 0), (32, 16))  # (offset, first weight of the run)
_LEAST: Final = 2.0**-100  # blocks below become zero: far below, most / largest is infinite


@dataclass(frozen=True)
class RecordShape:
    """The layout of a record, in bytes."""

    num_digits: int

    @property
    def scale_at(self) -> int:
        return BLOCK_LEN * self.num_digits

    @cached_property
    def num_bytes(self) -> int:
        return self.scale_at + 32

    def block_stride(self, num_rows: int) -> int:
        """Return the bytes from a group's records of one block to those of the next block."""
        return self.num_bytes * min(GROUP_ROWS, power_of_two(num_rows))

    def correction_at(self, offset: int, first: int) -> int:
        """Return where the start of a sum is, for the run of weights from `first` on in a block."""
        return self.scale_at + 8 + 4 * _CORRECTIONS.index((offset, first))


def first_sum(machine: Machine) -> int:
    """Return the start of integer sums. With one digit they have 20 bits at most: if they start at
    the bits of 1.5 · 2^23, they are the bits of floats, which saves x86 a conversion."""
    return ROUND_BITS if machine.num_digits == 1 and not machine.instructions.is_signed else 0


def make_write_blocks(machine: Machine) -> Any:
    """Make write_blocks(x, row, first, last, num_blocks, records, stride), which writes the records
    of blocks `first` … `last` - 1 of the row at `x`; `stride` is from block to block."""
    # As many blocks together as fit registers, because one folding serves them all.
    together = 4 if machine.instructions.num_outputs == 16 else 1
    write_some, write_one = (_make_write_records(machine, count) for count in (together, 1))
    record_bytes = RecordShape(machine.num_digits).num_bytes

    @njit(inline="always")
    def write_blocks(x, row, first, last, num_blocks, records, stride):  # type: ignore[no-untyped-def]
        here = records + row // GROUP_ROWS * num_blocks * stride + row % GROUP_ROWS * record_bytes
        block = first
        while together > 1 and block + together <= last:
            write_some(x + 4 * BLOCK_LEN * block, here + stride * block, stride)
            block += together
        while block < last:
            write_one(x + 4 * BLOCK_LEN * block, here + stride * block, stride)
            block += 1

    return write_blocks


def _make_write_records(machine: Machine, count: int) -> Any:
    """Make an intrinsic write_records(x, records, stride), which writes the records of `count`
    blocks of 32 floats at `x`; the records are `stride` apart."""

    @emitted(void, int64, int64, int64)
    def write_records(b: Any, x: Value, records: Value, stride: Value) -> None:
        e = Emitter(b, machine)
        places = [b.add(records, b.mul(stride, i64(idx))) for idx in range(count)]
        _emit_records(e, [e.offset(x, 4 * BLOCK_LEN * idx) for idx in range(count)], places)

    return write_records


def _emit_records(e: Emitter, addresses: list[Value], records: list[Value]) -> None:
    b, shape, count = e.builder, RecordShape(e.machine.num_digits), len(records)
    some = vector(F32, count)
    most = constant(F32, [float(127 << DIGIT_BITS * (shape.num_digits - 1))] * count)
    blocks = [e.load(address, vector(F32, BLOCK_LEN)) for address in addresses]
    largest = b.bitcast(_largest(e, blocks), some)
    is_zero = b.fcmp_ordered("<", largest, constant(F32, [_LEAST] * count))
    inverse = b.select(is_zero, constant(F32, [0.0] * count), b.fdiv(most, largest))
    wholes = [_nearest(e, x, inverse, idx) for idx, x in enumerate(blocks)]
    for whole, record in zip(wholes, records, strict=True):
        for idx, digit in enumerate(_digits(e, whole, shape.num_digits)):
            e.store(b.trunc(digit, vector(I8, BLOCK_LEN)), e.offset(record, BLOCK_LEN * idx))
    scale = b.fdiv(largest, most)
    halves = e.fold_each([e.part(x, first, 16) for x in wholes for first in (0, 16)], b.add)
    totals = b.add(halves, e.shuffle(halves, halves, [i ^ 1 for i in range(2 * count)]))  # twice
    of_blocks = e.shuffle(totals, totals, list(range(0, 2 * count, 2)))
    block_sums = b.fmul(b.sitofp(of_blocks, some), scale)
    factors = constant(I32, [-offset for offset, _ in _CORRECTIONS])
    for idx, record in enumerate(records):
        both = e.shuffle(scale, block_sums, [idx, count + idx])
        e.store(both, e.offset(record, shape.scale_at))
        sums = [2 * idx, 2 * idx + 1]
        four = e.shuffle(totals, halves, [*sums, *(2 * count + i for i in sums)])
        place = e.offset(record, shape.correction_at(*_CORRECTIONS[0]))
        first = constant(I32, [first_sum(e.machine)] * len(_CORRECTIONS))
        e.store(b.add(b.mul(four, factors), first), place)


def _largest(e: Emitter, blocks: list[Value]) -> Value:
    """Return the largest |x| of each block, as bits: without signs, floats are ordered as their
    bits are, and a NaN is the largest."""
    b, wide = e.builder, vector(I32, BLOCK_LEN)
    without_sign = constant(I32, [0x7FFFFFFF] * BLOCK_LEN)
    found = [b.and_(b.bitcast(x, wide), without_sign) for x in blocks]
    if len(found) == 1:  # ARM has an instruction for this
        return e.splat(e.intrinsic(f"vector.reduce.umax.v{BLOCK_LEN}i32", I32, found), 1)

    def larger(left: Value, right: Value) -> Value:
        return e.call("umax", left.type, [left, right])

    halves = [[e.part(bits, first, 16) for first in (0, 16)] for bits in found]
    return e.fold_each([larger(*two) for two in halves], larger)


def _nearest(e: Emitter, x: Value, inverse: Value, idx: int) -> Value:
    """Return x · inverse[idx], rounded to integers, halves to even; 0 for NaN."""
    b, wide = e.builder, vector(I32, BLOCK_LEN)
    scaled = b.fmul(x, e.shuffle(inverse, inverse, [idx] * BLOCK_LEN))
    is_number = b.fcmp_ordered("ord", scaled, scaled)
    # The nearest integer is left in the low bits of this sum.
    rounded = b.bitcast(b.fadd(scaled, constant(F32, [ROUND] * BLOCK_LEN)), wide)
    whole = b.sub(rounded, constant(I32, [ROUND_BITS] * BLOCK_LEN))
    return b.select(is_number, whole, constant(I32, [0] * BLOCK_LEN))


def _digits(e: Emitter, whole: Value, count: int) -> list[Value]:
    """Split integers into digits: -127 … 127, and if there are two, the second is -128 … 127."""
    if count == 1:
        return [whole]
    b = e.builder
    half = constant(I32, [1 << (DIGIT_BITS - 1)] * BLOCK_LEN)
    bits = constant(I32, [DIGIT_BITS] * BLOCK_LEN)
    high = b.ashr(b.add(whole, half), bits)
    return [high, b.sub(whole, b.shl(high, bits))]
