"""What compiled functions need and Numba's language lacks: addresses, atomics, lanes.

Operations get addresses as int64 and read their arguments from a step (see `runtime/program.py`).
"""

from __future__ import annotations

import sys
from typing import Any, Final

from llvmlite import ir
from numba import float32, float64, int64, types, uint64, void

from forerun.kernels.cpu.codegen.emitted import emitted
from forerun.kernels.cpu.codegen.lanes import F32, GROUP_LEN, I1, I32, I64, Emitter, Value, vector
from forerun.kernels.cpu.codegen.loops import loop
from forerun.kernels.cpu.codegen.machine import Machine

_FLOATS, _DOUBLES, _INTS = (types.CPointer(kind) for kind in (float32, float64, int64))  # type: ignore[no-untyped-call]
_GROUP: Final = vector(F32, GROUP_LEN)
_YIELD: Final = "SwitchToThread" if sys.platform == "win32" else "sched_yield"


@emitted(int64, int64, int64)
def int_at(b: Any, address: Value, idx: Value) -> Value:
    """Load the idx-th int64 at an address."""
    return b.load(b.gep(b.inttoptr(address, I64.as_pointer()), [idx]))


@emitted(_FLOATS, int64)
def floats(b: Any, address: Value) -> Value:
    """Return the float32 array at an address, for indexing."""
    return b.inttoptr(address, F32.as_pointer())


@emitted(_DOUBLES, int64)
def doubles(b: Any, address: Value) -> Value:
    return b.inttoptr(address, ir.DoubleType().as_pointer())


@emitted(_INTS, int64)
def ints(b: Any, address: Value) -> Value:
    return b.inttoptr(address, I64.as_pointer())


@emitted(void, int64)
def prefetch(b: Any, address: Value) -> None:
    """Prefetch memory that will soon be read."""
    Emitter(b, Machine.host()).prefetch(address)


@emitted(void, int64)
def prefetch_to_write(b: Any, address: Value) -> None:
    """Prefetch memory that will soon be written and that other threads may have read."""
    Emitter(b, Machine.host()).prefetch(address, to_write=True)


@emitted(int64, int64, int64)
def quotient(b: Any, num: Value, divisor: Value) -> Value:
    """Return num // divisor, for 0 ≤ num < 2^31 and 0 < divisor < 2^31. Processors divide 32 bits
    several times as fast as 64."""
    return emit_quotient(b, num, divisor)


def emit_quotient(b: Any, num: Value, divisor: Value) -> Value:
    return b.zext(b.udiv(b.trunc(num, I32), b.trunc(divisor, I32)), I64)


@emitted(int64, int64, int64)
def num_parts(b: Any, num: Value, most: Value) -> Value:
    """Return the number of parts of up to `most`; the range of numbers is that of `quotient`."""
    return emit_num_parts(b, num, most)


def emit_num_parts(b: Any, num: Value, most: Value) -> Value:
    return emit_quotient(b, b.add(num, b.sub(most, I64(1))), most)


@emitted(int64, uint64)
def leading_zeros(b: Any, value: Value) -> Value:
    """Count the leading zeros of 64 bits."""
    return b.ctlz(value, ir.Constant(I1, 0))


@emitted(int64, int64, int64)
def fetch_add(b: Any, address: Value, value: Value) -> Value:
    """Add to a counter that other threads use, and return its previous value.

    Sequentially consistent: a thread that joins a pass and the one that closes it each write one
    counter, then read the other's; at least one of them must see what the other wrote.
    """
    return b.atomic_rmw("add", b.inttoptr(address, I64.as_pointer()), value, "seq_cst")


@emitted(int64, int64, int64, int64)
def exchange(b: Any, address: Value, expected: Value, value: Value) -> Value:
    """Compare and exchange: write `value` if `expected` is there; return the previous value."""
    pointer = b.inttoptr(address, I64.as_pointer())
    return b.extract_value(b.cmpxchg(pointer, expected, value, "acq_rel", "acquire"), 0)


@emitted(int64, int64)
def peek(b: Any, address: Value) -> Value:
    """Read a counter; what was written before the counter reached this value is visible after."""
    return b.load_atomic(b.inttoptr(address, I64.as_pointer()), "seq_cst", 8)


@emitted(void)
def yield_processor(b: Any) -> None:
    """Let another thread run on this core."""
    kind = ir.FunctionType(I32, [])
    b.call(b.module.globals.get(_YIELD) or ir.Function(b.module, kind, _YIELD), [])


@emitted(void, int64, int64, int64, int64)
def call_operation(b: Any, function: Value, step: Value, chunk: Value, scratch: Value) -> None:
    """Call an operation by its address."""
    kind = ir.FunctionType(ir.VoidType(), [I64, I64, I64])
    b.call(b.inttoptr(function, kind.as_pointer()), [step, chunk, scratch])


@emitted(float32, int64, int64, int64)
def dot(b: Any, left: Value, right: Value, num_groups: Value) -> Value:
    """Σ left·right over groups of 16 floats, in 16 partial sums."""
    e = Emitter(b, Machine.host())

    def body(idx: Value, acc: list[Value]) -> list[Value]:
        offset = b.mul(idx, I64(4 * GROUP_LEN))
        x, y = (e.load(b.add(address, offset), _GROUP) for address in (left, right))
        return [e.fma(x, y, acc[0])]

    return e.fold(loop(b, num_groups, [_GROUP([0.0] * GROUP_LEN)], body)[0])
