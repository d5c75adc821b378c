"""Activations as two digits of 8 bits, for integer dot products (ARM).

    x = s · (256·d₀ + d₁)     s = max|x| / (127·256) over a block of 32 activations

That is 15 bits below the largest of a block, and a sign. A record of a block holds its digits, 32
bytes of each, then s and the sum of the block.
"""

from __future__ import annotations

from typing import Any, Final

from numba import int64, void

from forerun.kernels.cpu.emitted import emitted
from forerun.kernels.cpu.lanes import F32, I8, I32, Emitter, Machine, Value, constant, vector

NUM_DIGITS: Final = 2
DIGIT_BITS: Final = 8
BLOCK_LEN: Final = 32
SCALE_AT: Final = BLOCK_LEN * NUM_DIGITS
RECORD_BYTES: Final = SCALE_AT + 16
_MOST: Final = 127 << DIGIT_BITS
_LEAST: Final = 2.0**-100  # blocks below are zero: far below, _MOST / largest is infinite


@emitted(void, int64, int64)
def write_record(b: Any, x: Value, record: Value) -> None:
    """From the addresses of 32 floats and of a record."""
    _emit_record(Emitter(b, Machine.host()), x, record)


def _emit_record(e: Emitter, address: Value, record: Value) -> None:
    b = e.builder
    kind, wide = vector(F32, BLOCK_LEN), vector(I32, BLOCK_LEN)
    x = e.load(address, kind)
    largest = _reduced(e, "vector.reduce.fmaximum", e.call("fabs", kind, [x]), F32)
    inverse = b.fdiv(F32(float(_MOST)), largest)
    is_zero = b.fcmp_ordered("<", largest, F32(_LEAST))
    inverse = b.select(is_zero, F32(0.0), inverse)
    rounded = e.call("rint", kind, [b.fmul(x, e.splat(inverse, BLOCK_LEN))])
    whole = _saturated(e, rounded, wide)
    for idx, digit in enumerate(_digits(e, whole)):
        e.store(b.trunc(digit, vector(I8, BLOCK_LEN)), e.offset(record, BLOCK_LEN * idx))
    scale = b.fdiv(largest, F32(float(_MOST)))
    total = b.sitofp(_reduced(e, "vector.reduce.add", whole, I32), F32)
    e.store(scale, e.offset(record, SCALE_AT))
    e.store(b.fmul(total, scale), e.offset(record, SCALE_AT + 4))


def _digits(e: Emitter, whole: Value) -> tuple[Value, Value]:
    """-127 … 127 and -128 … 127, the higher one first."""
    b = e.builder
    half = constant(I32, [1 << (DIGIT_BITS - 1)] * BLOCK_LEN)
    bits = constant(I32, [DIGIT_BITS] * BLOCK_LEN)
    high = b.ashr(b.add(whole, half), bits)
    return high, b.sub(whole, b.shl(high, bits))


def _reduced(e: Emitter, name: str, value: Value, result: Any) -> Value:
    suffix = f"v{value.type.count}{'f' if result == F32 else 'i'}32"
    return e.intrinsic(f"{name}.{suffix}", result, [value])


def _saturated(e: Emitter, value: Value, kind: Any) -> Value:
    return e.intrinsic(f"fptosi.sat.v{kind.count}i32.v{kind.count}f32", kind, [value])
