"""exp in float32 as our own polynomial, so that no library chooses its bits."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import float32, int32, njit

from forerun.kernels.cpu.codegen.lanes import F32, I32, Emitter, Value, constant
from forerun.kernels.cpu.codegen.native import bits_of_float, float_of_bits, fma

_LOG2_E = float32(1.4426950408889634)
_LN2_HIGH = float32(0.693359375)  # few bits, so that n · _LN2_HIGH is exact
_LN2_LOW = float32(-2.12194440e-4)
ROUND = 12582912.0  # 1.5 · 2^23: adding it leaves the nearest integer in the low bits
_ROUND = float32(ROUND)
ROUND_BITS = 0x4B400000
_ROUND_BITS = int32(ROUND_BITS)
_LOWEST, _HIGHEST = float32(-87.0), float32(88.0)


@njit(inline="always")
def exp32(x):  # type: ignore[no-untyped-def]
    """e^x for a float32, clamped to e^-87 … e^88: 2^n · e^r with |r| ≤ ln 2 / 2.

    e^r is its Taylor polynomial to the seventh power, 5e-9 off at most.
    """
    x = _LOWEST if x < _LOWEST else x
    x = _HIGHEST if x > _HIGHEST else x
    shifted = fma(x, _LOG2_E, _ROUND)
    n = shifted - _ROUND
    r = fma(-n, _LN2_LOW, fma(-n, _LN2_HIGH, x))
    p = fma(r, float32(1 / 5040), float32(1 / 720))
    p = fma(r, p, float32(1 / 120))
    p = fma(r, p, float32(1 / 24))
    p = fma(r, p, float32(1 / 6))
    p = fma(r, p, float32(1 / 2))
    p = fma(r, p, float32(1))
    p = fma(r, p, float32(1))
    exponent = (bits_of_float(shifted) - _ROUND_BITS + int32(127)) << int32(23)
    return p * float_of_bits(int32(exponent))


def emit_exp(e: Emitter, x: Value) -> Value:
    """The same of each of some lanes, with the same bits."""
    b, count = e.builder, x.type.count

    def all_lanes(value: float | np.floating[Any]) -> Value:
        return constant(F32, [float(np.float32(value))] * count)

    for limit, beyond in ((all_lanes(_LOWEST), "<"), (all_lanes(_HIGHEST), ">")):
        x = b.select(b.fcmp_ordered(beyond, x, limit), limit, x)
    shifted = e.fma(x, all_lanes(_LOG2_E), all_lanes(_ROUND))
    less = b.fneg(b.fsub(shifted, all_lanes(_ROUND)))
    r = e.fma(less, all_lanes(_LN2_LOW), e.fma(less, all_lanes(_LN2_HIGH), x))
    p = all_lanes(1 / 5040)
    for divisor in (720, 120, 24, 6, 2, 1, 1):
        p = e.fma(r, p, all_lanes(1 / divisor))
    bias = constant(I32, [127 - ROUND_BITS] * count)
    bits = b.add(b.bitcast(shifted, bias.type), bias)
    power = b.shl(bits, constant(I32, [23] * count))
    return b.fmul(p, b.bitcast(power, x.type))
