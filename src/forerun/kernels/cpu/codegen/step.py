"""Access to the fields of a step in compiled code; `runtime/program.py` writes them."""

from __future__ import annotations

from typing import Any

from numba import float32, int64

from forerun.kernels.cpu.codegen.emitted import emitted
from forerun.kernels.cpu.codegen.lanes import F32, GROUP_LEN, I32, I64, Value, i64

NUM_HEADER_FIELDS = 3


@emitted(int64, int64, int64)
def arg(b: Any, step: Value, idx: Value) -> Value:
    fields = b.inttoptr(step, I64.as_pointer())
    return b.load(b.gep(fields, [b.add(idx, i64(NUM_HEADER_FIELDS))]))


@emitted(float32, int64, int64)
def float_arg(b: Any, step: Value, idx: Value) -> Value:
    fields = b.inttoptr(step, I64.as_pointer())
    bits = b.load(b.gep(fields, [b.add(idx, i64(NUM_HEADER_FIELDS))]))
    return b.bitcast(b.trunc(bits, I32), F32)


@emitted(int64, int64)
def num_groups(b: Any, length: Value) -> Value:
    return b.sdiv(b.add(length, i64(GROUP_LEN - 1)), i64(GROUP_LEN))
