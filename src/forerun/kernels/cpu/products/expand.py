"""Expansion of a row of weights to float32, for embeddings."""

from __future__ import annotations

from typing import Any

from numba import int64, void

from forerun.kernels.cpu.codegen.emitted import emitted
from forerun.kernels.cpu.codegen.lanes import GROUP_LEN, I32, Emitter, Value, i64, vector
from forerun.kernels.cpu.codegen.loops import loop
from forerun.kernels.cpu.codegen.machine import Machine
from forerun.kernels.cpu.products.blocks import FileBlock
from forerun.kernels.cpu.products.float_tile import load_floats
from forerun.kernels.cpu.products.formats import FLOATS, FORMATS
from forerun.kernels.cpu.products.integer_weights import CHUNKS, Run


def make_expand(weight_format: str, machine: Machine) -> Any:
    """Make an intrinsic expand(row, num_blocks, out); `row` and `out` are addresses."""

    @emitted(void, int64, int64, int64)
    def expand(b: Any, row: Value, num_blocks: Value, out: Value) -> None:
        _emit(weight_format, Emitter(b, machine), row, num_blocks, out)

    return expand


def _emit(weight_format: str, e: Emitter, row: Value, num_blocks: Value, out: Value) -> None:
    b, layout = e.builder, FORMATS[weight_format]
    chunk_bytes = 4 * layout.block_len // layout.num_chunks

    def block_body(block: Value, _carried: list[Value]) -> list[Value]:
        packed = b.add(row, b.mul(block, i64(layout.block_bytes)))
        target = b.add(out, b.mul(block, i64(4 * layout.block_len)))

        def chunk_body(idx: Value, _carried: list[Value]) -> list[Value]:
            at = b.add(target, b.mul(idx, i64(chunk_bytes)))
            for g, group in enumerate(_groups(weight_format, e, packed, idx)):
                e.store(group, e.offset(at, 4 * GROUP_LEN * g))
            return []

        return loop(b, i64(layout.num_chunks), [], chunk_body)

    loop(b, num_blocks, [], block_body)


def _groups(weight_format: str, e: Emitter, block: Value, idx: Value) -> list[Value]:
    """Return chunk `idx` of the block at an address, as groups of 16 floats."""
    if weight_format in FLOATS:
        return [load_floats(weight_format, e, block)]
    runs = CHUNKS[weight_format](e, FileBlock(e, block), idx)
    return [_floats(e, run, quants) for run in runs for quants in run.quants[0]]


def _floats(e: Emitter, run: Run, quants: Value) -> Value:
    """(q − offset)·d + c, rounded once."""
    d = e.spread(run.d)
    if run.offset == 128:
        signed = e.builder.sext(quants, vector(I32, GROUP_LEN))
        return e.builder.fmul(e.from_integers(signed), d)
    c = e.times(-float(run.offset), d) if run.c is None else e.spread(run.c)
    return e.fma(e.from_integers(quants), d, c)
