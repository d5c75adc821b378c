"""exp in float32, as Forerun's own polynomial, so that no library chooses its bits; and SiLU."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import float32, int64, void

from forerun.kernels.cpu.codegen.emitted import emitted
from forerun.kernels.cpu.codegen.lanes import F32, GROUP_LEN, I32, Emitter, Value, constant, vector
from forerun.kernels.cpu.codegen.machine import Machine

ROUND: Final = 12582912.0  # 1.5 · 2^23: adding it leaves the nearest integer in the low bits
ROUND_BITS: Final = 0x4B400000
_LOG2_E: Final = 1.4426950408889634
_LN2_HIGH: Final = 0.693359375  # few bits, so that n · _LN2_HIGH is exact
_LN2_LOW: Final = -2.12194440e-4
_LOWEST, _HIGHEST = -87.0, 88.0


@emitted(float32, float32)
def exp32(b: Any, x: Value) -> Value:
    return emit_exp(Emitter(b, Machine.host()), x)


@emitted(void, int64, int64, int64)
def silu_group(b: Any, gate: Value, up: Value, out: Value) -> None:
    """out = gate / (1 + e^-gate) · up for 16 floats at each address."""
    e = Emitter(b, Machine.target())
    x, y = (e.load(address, vector(F32, GROUP_LEN)) for address in (gate, up))
    share = b.fadd(constant(F32, [1.0] * GROUP_LEN), emit_exp(e, b.fneg(x)))
    e.store(b.fmul(b.fdiv(x, share), y), out)


def emit_exp(e: Emitter, x: Value) -> Value:
    """e^x for float32, alone or in lanes, clamped to e^-87 … e^88: 2^n · e^r with |r| ≤ ln 2 / 2.

    e^r is its Taylor polynomial of degree seven, whose error is 5e-9 at most.
    """
    b, kind, count = e.builder, x.type, getattr(x.type, "count", None)
    integers = I32 if count is None else vector(I32, count)

    def real(value: float) -> Value:
        rounded = float(np.float32(value))
        return kind(rounded if count is None else [rounded] * count)

    def whole(value: int) -> Value:
        return integers(value if count is None else [value] * count)

    for limit, beyond in ((real(_LOWEST), "<"), (real(_HIGHEST), ">")):
        x = b.select(b.fcmp_ordered(beyond, x, limit), limit, x)
    shifted = e.fma(x, real(_LOG2_E), real(ROUND))
    less = b.fneg(b.fsub(shifted, real(ROUND)))
    r = e.fma(less, real(_LN2_LOW), e.fma(less, real(_LN2_HIGH), x))
    p = real(1 / 5040)
    for divisor in (720, 120, 24, 6, 2, 1, 1):
        p = e.fma(r, p, real(1 / divisor))
    bits = b.add(b.bitcast(shifted, integers), whole(127 - ROUND_BITS))
    power = b.shl(bits, whole(23))
    return b.fmul(p, b.bitcast(power, kind))
