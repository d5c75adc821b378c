"""The operands of a tile."""

from __future__ import annotations

from dataclasses import dataclass

from forerun.kernels.cpu.codegen.lanes import Emitter, Value, i64


@dataclass(frozen=True)
class Operands:
    """The addresses of a tile's weights, rows and results, and strides in bytes."""

    w: Value
    w_stride: Value
    x: Value  # floats, or records of digits
    x_stride: Value  # to the next row of floats, or to the records of the next block
    num_blocks: Value  # in a row of w
    y: Value
    y_stride: Value


def row_of(e: Emitter, address: Value, stride: Value, idx: int) -> Value:
    """The address of row `idx`."""
    return e.builder.add(address, e.builder.mul(stride, i64(idx))) if idx else address
