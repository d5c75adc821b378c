"""A tile of floats: a few outputs times a few rows, whose sums stay in registers."""

from __future__ import annotations

from dataclasses import dataclass

from forerun.kernels.cpu.codegen.lanes import (
    F16,
    F32,
    GROUP_LEN,
    I16,
    I32,
    Emitter,
    Value,
    constant,
    i64,
    vector,
)
from forerun.kernels.cpu.codegen.loops import loop
from forerun.kernels.cpu.products.formats import FLOATS
from forerun.kernels.cpu.products.operands import Operands, row_of


@dataclass(frozen=True)
class FloatTile:
    """y[row, output] = Σ w·x, each in `num_lanes` partial sums."""

    weight_format: str
    num_outputs: int
    num_rows: int
    e: Emitter
    o: Operands

    def emit(self) -> None:
        e = self.e
        zero = e.lanes([0.0] * e.machine.num_lanes)
        start = [zero] * (self.num_outputs * self.num_rows)
        acc = loop(e.builder, self.o.num_blocks, start, self._group)
        for idx, total in enumerate(acc):
            output, row = divmod(idx, self.num_rows)
            at = row_of(e, e.offset(self.o.y, 4 * output), self.o.y_stride, row)
            e.store(e.fold(total), at)

    def _group(self, idx: Value, acc: list[Value]) -> list[Value]:
        e, b = self.e, self.e.builder
        first = b.add(self.o.w, b.mul(idx, i64(FLOATS[self.weight_format].block_bytes)))
        x = b.add(self.o.x, b.mul(idx, i64(4 * GROUP_LEN)))
        outputs = [row_of(e, first, self.o.w_stride, output) for output in range(self.num_outputs)]
        if not e.machine.instructions.is_signed:  # not measured on ARM
            for address in outputs:  # the same blocks of the next tile
                e.prefetch(row_of(e, address, self.o.w_stride, self.num_outputs))
        weights = [e.split(load_floats(self.weight_format, e, address)) for address in outputs]
        for v in range(len(weights[0])):  # [output][vector]
            at = e.offset(x, 4 * e.machine.num_lanes * v)
            for row in range(self.num_rows):
                value = e.load(row_of(e, at, self.o.x_stride, row), e.lanes)
                for output, mine in enumerate(weights):
                    place = output * self.num_rows + row
                    acc[place] = e.fma(mine[v], value, acc[place])
        return acc


def load_floats(weight_format: str, e: Emitter, address: Value) -> Value:
    """Load 16 weights of F32, F16 or BF16 as float32."""
    b, floats = e.builder, vector(F32, GROUP_LEN)
    if weight_format == "F32":
        return e.load(address, floats)
    if weight_format == "F16":
        return b.fpext(e.load(address, vector(F16, GROUP_LEN)), floats)
    wide = b.zext(e.load(address, vector(I16, GROUP_LEN)), vector(I32, GROUP_LEN))
    return b.bitcast(b.shl(wide, constant(I32, [16] * GROUP_LEN)), floats)  # BF16: the upper half
