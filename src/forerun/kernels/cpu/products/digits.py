"""Activations as digits of 8 bits, for integer dot products.

    x = s · (256·d₀ + d₁)     s = max|x| / (127·256) over a block of 32 activations
    x = s · d₀                s = max|x| / 127, where 8 bits are asked for

Two digits are 15 bits below the largest of a block, and a sign. A record of a block holds its
digits, 32 bytes of each, then s, the sum of the block, and what to add to integer sums where
weights were made unsigned by an offset: minus the offset times the sum of 256·d₀ + d₁.

Rows come in groups of up to 16, padded to a power of two; records of one block lie in a row:

    group 0   block 0: row 0, row 1 …    block 1: row 0, row 1 …    …    group 1   …
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from numba import int64, void

from forerun.kernels.cpu.codegen.emitted import emitted
from forerun.kernels.cpu.codegen.lanes import (
    F32,
    I8,
    I32,
    Emitter,
    Value,
    constant,
    power_of_two,
    vector,
)
from forerun.kernels.cpu.codegen.machine import Machine
from forerun.kernels.cpu.codegen.scalar import ROUND, ROUND_BITS

DIGIT_BITS: Final = 8
BLOCK_LEN: Final = 32
GROUP_ROWS: Final = 16
_CORRECTIONS: Final = ((128, 0), (8, 0), (32, 0), (32, 16))  # (offset, first of 32 or 16 weights)
_LEAST: Final = 2.0**-100  # blocks below are zero: far below, most / largest is infinite


@dataclass(frozen=True)
class RecordShape:
    """Where a record has what, in bytes."""

    num_digits: int

    @property
    def scale_at(self) -> int:
        return BLOCK_LEN * self.num_digits

    @cached_property
    def num_bytes(self) -> int:
        return self.scale_at + 32

    def block_stride(self, num_rows: int) -> int:
        """From the records of a block to those of the next, in a group."""
        return self.num_bytes * min(GROUP_ROWS, power_of_two(num_rows))

    def correction_at(self, offset: int, first: int) -> int:
        """Of a run of weights from `first` on in its block."""
        return self.scale_at + 8 + 4 * _CORRECTIONS.index((offset, first))


def make_write_record(machine: Machine) -> Any:
    """An intrinsic write_record(x, record): from the addresses of 32 floats and of a record."""

    @emitted(void, int64, int64)
    def write_record(b: Any, x: Value, record: Value) -> None:
        _emit_record(Emitter(b, machine), x, record)

    return write_record


def _emit_record(e: Emitter, address: Value, record: Value) -> None:
    b, shape = e.builder, RecordShape(e.machine.num_digits)
    most = F32(float(127 << DIGIT_BITS * (shape.num_digits - 1)))
    kind, wide = vector(F32, BLOCK_LEN), vector(I32, BLOCK_LEN)
    x = e.load(address, kind)
    bits = b.and_(b.bitcast(x, wide), constant(I32, [0x7FFFFFFF] * BLOCK_LEN))
    # Without a sign floats are ordered as integers are, and one that is no number is the largest.
    largest = b.bitcast(_reduced(e, "vector.reduce.umax", bits, I32), F32)
    is_zero = b.fcmp_ordered("<", largest, F32(_LEAST))
    inverse = b.select(is_zero, F32(0.0), b.fdiv(most, largest))
    scaled = b.fmul(x, e.splat(inverse, BLOCK_LEN))
    is_number = b.fcmp_ordered("ord", scaled, scaled)
    # The nearest integer, halves to even, is left in the low bits of this sum.
    rounded = b.bitcast(b.fadd(scaled, constant(F32, [ROUND] * BLOCK_LEN)), wide)
    whole = b.sub(rounded, constant(I32, [ROUND_BITS] * BLOCK_LEN))
    whole = b.select(is_number, whole, constant(I32, [0] * BLOCK_LEN))
    for idx, digit in enumerate(_digits(e, whole, shape.num_digits)):
        e.store(b.trunc(digit, vector(I8, BLOCK_LEN)), e.offset(record, BLOCK_LEN * idx))
    scale = b.fdiv(largest, most)
    halves = e.fold_each([e.part(whole, first, 16) for first in (0, 16)], b.add)
    total = b.add(halves, e.shuffle(halves, halves, [1, 0]))  # twice
    e.store(scale, e.offset(record, shape.scale_at))
    block_sum = b.fmul(b.sitofp(b.extract_element(total, I32(0)), F32), scale)
    e.store(block_sum, e.offset(record, shape.scale_at + 4))
    factors = constant(I32, [-offset for offset, _ in _CORRECTIONS])
    corrections = b.mul(e.concat(total, halves), factors)
    e.store(corrections, e.offset(record, shape.correction_at(*_CORRECTIONS[0])))


def _digits(e: Emitter, whole: Value, count: int) -> list[Value]:
    """-127 … 127 and, after it, -128 … 127."""
    if count == 1:
        return [whole]
    b = e.builder
    half = constant(I32, [1 << (DIGIT_BITS - 1)] * BLOCK_LEN)
    bits = constant(I32, [DIGIT_BITS] * BLOCK_LEN)
    high = b.ashr(b.add(whole, half), bits)
    return [high, b.sub(whole, b.shl(high, bits))]


def _reduced(e: Emitter, name: str, value: Value, result: Any) -> Value:
    return e.intrinsic(f"{name}.v{value.type.count}i32", result, [value])
