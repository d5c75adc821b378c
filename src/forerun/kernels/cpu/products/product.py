"""The product of weights and rows, by tiles: a few outputs times the rows of one call."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from numba import int64, void

from forerun.kernels.cpu.codegen.emitted import emitted
from forerun.kernels.cpu.codegen.lanes import Emitter, Value, i64
from forerun.kernels.cpu.codegen.loops import loop
from forerun.kernels.cpu.codegen.machine import Machine
from forerun.kernels.cpu.products.digit_tile import DigitTile
from forerun.kernels.cpu.products.digits import GROUP_ROWS
from forerun.kernels.cpu.products.float_tile import FloatTile
from forerun.kernels.cpu.products.formats import FORMATS, PACKED
from forerun.kernels.cpu.products.operands import Operands


def max_rows(weight_format: str, machine: Machine) -> int:
    """Return the most rows of a tile; there is a tile for each number up to it. Tiles of more than
    eight rows take too long to compile for the K formats, and lack registers without VNNI."""
    if weight_format not in PACKED:
        return len(machine.tile_outputs)
    has_all = machine.instructions.name == "vnni" and machine.num_digits == 1
    if has_all and not _is_chunked(weight_format):
        return GROUP_ROWS
    return machine.instructions.max_rows[machine.num_digits - 1]


def widest(weight_format: str, machine: Machine) -> int:
    """Return `max_rows`, or a whole group of rows if there is a tile of exactly so many: on ARM for
    the K formats alone, whose weights take longest to unpack."""
    is_wide = machine.instructions.has_wide_tile and machine.num_digits == 1
    pays = _is_chunked(weight_format) or not machine.instructions.is_signed
    if is_wide and pays and weight_format in PACKED:
        return GROUP_ROWS
    return max_rows(weight_format, machine)


def _is_chunked(weight_format: str) -> bool:
    return FORMATS[weight_format].num_chunks > 1


def make_product(weight_format: str, machine: Machine) -> Any:
    """Make an intrinsic product(num_rows, num_outputs, *operands): y[row, output] = w · x.

    `num_rows` is 1 … `max_rows`, or `widest`: each number has its own tile. A last tile that does
    not fit is moved back and computes some outputs again, so `num_outputs` must be at least the
    tile's.
    """

    @emitted(void, *[int64] * 9)
    def product(b: Any, num_rows: Value, num_outputs: Value, *operands: Value) -> None:
        e = Emitter(b, machine)
        _emit_widths(weight_format, e, num_rows, num_outputs, Operands(*operands))

    return product


def _emit_widths(
    weight_format: str, e: Emitter, num_rows: Value, num_outputs: Value, operands: Operands
) -> None:
    b = e.builder
    done = b.append_basic_block("done")
    switch = b.switch(num_rows, done)
    usual = range(1, max_rows(weight_format, e.machine) + 1)
    for width in sorted({*usual, widest(weight_format, e.machine)}):
        case = b.append_basic_block(f"rows{width}")
        switch.add_case(i64(width), case)
        b.position_at_end(case)
        _emit_outputs(weight_format, e, width, num_outputs, operands)
        b.branch(done)
    b.position_at_end(done)


def _emit_outputs(
    weight_format: str, e: Emitter, width: int, num_outputs: Value, operands: Operands
) -> None:
    b, packed = e.builder, weight_format in PACKED
    step = e.machine.instructions.num_outputs if packed else e.machine.tile_outputs[width - 1]
    last = b.sub(num_outputs, i64(step))

    def body(idx: Value, _carried: list[Value]) -> list[Value]:
        w_first = first = b.mul(idx, i64(step))
        first = b.select(b.icmp_signed("<", first, last), first, last)
        if not packed:  # interleaved weights repeat these outputs in their last tile
            w_first = first
        w = b.add(operands.w, b.mul(w_first, operands.w_stride))
        here = replace(operands, w=w, y=b.add(operands.y, b.mul(first, i64(4))))
        if packed:
            DigitTile(weight_format, width, e, here).emit()
        else:
            FloatTile(weight_format, step, width, e, here).emit()
        return []

    loop(b, b.sdiv(b.add(num_outputs, i64(step - 1)), i64(step)), [], body)
