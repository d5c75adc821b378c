"""The numbers of stored keys and values: float32, or float16, which attention reads as float32.

A float is rounded to the nearest float16; one beyond the range becomes the largest, not infinity.
"""

from __future__ import annotations

from typing import Any, Final

from numba import int64, njit, void

from forerun.kernels.cpu.codegen.emitted import emitted
from forerun.kernels.cpu.codegen.lanes import (
    F16,
    F32,
    GROUP_LEN,
    I16,
    I32,
    Emitter,
    Value,
    i64,
    vector,
)
from forerun.kernels.cpu.codegen.machine import Machine

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

_LINE: Final = 64
_LAST_HALF: Final = 65504.0
_GROUP: Final = vector(F32, GROUP_LEN)


def _is_half() -> bool:
    return Machine.target().row_type == "float16"


def emitted_bytes() -> int:
    """Return the bytes of a stored number, for the code that is being generated."""
    return 2 if _is_half() else 4


@emitted(int64)
def number_bytes(_b: Any) -> Value:
    """Return the bytes of a stored number, in compiled code."""
    return i64(emitted_bytes())


@emitted(void, int64, int64)
def copy_number(b: Any, source: Value, target: Value) -> None:
    """Copy one stored number."""
    e = Emitter(b, Machine.target())
    e.store(e.load(source, I16 if _is_half() else I32), target)


@njit(inline="always")
def store_row(source, target, length):
    """Convert floats to stored numbers; `target` may be `source`."""
    stored, num_whole = number_bytes(), length & ~15
    for at in range(0, num_whole, 16):
        _store_group(source + 4 * at, target + stored * at)
    for at in range(num_whole, length):
        _store_one(source + 4 * at, target + stored * at)


@emitted(void, int64, int64)
def _store_group(b: Any, source: Value, target: Value) -> None:
    e = Emitter(b, Machine.target())
    e.store(_rounded(b, e.load(source, _GROUP)), target)


@emitted(void, int64, int64)
def _store_one(b: Any, source: Value, target: Value) -> None:
    e = Emitter(b, Machine.target())
    e.store(_rounded(b, e.load(source, F32)), target)


def _rounded(b: Any, x: Value) -> Value:
    if not _is_half():
        return x
    group = isinstance(x.type, type(_GROUP))
    for sign, last in (("<", _LAST_HALF), (">", -_LAST_HALF)):  # NaN stays NaN
        bound = x.type([last] * GROUP_LEN if group else last)
        x = b.select(b.fcmp_unordered(sign, x, bound), x, bound)
    return b.fptrunc(x, vector(F16, GROUP_LEN) if group else F16)


def load_group(e: Emitter, address: Value) -> Value:
    """Load 16 stored numbers as float32."""
    if not _is_half():
        return e.load(address, _GROUP)
    return e.builder.fpext(e.load(address, vector(F16, GROUP_LEN)), _GROUP)


def prefetch_group(e: Emitter, address: Value, idx: int) -> None:
    """Prefetch group `idx` after an address, unless an earlier group is in the same cache line."""
    at = GROUP_LEN * emitted_bytes() * idx
    if at % _LINE == 0:
        e.prefetch(e.offset(address, at))
