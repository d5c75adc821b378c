"""A row of packed weights to floats."""

from __future__ import annotations

from typing import Any

from numba import int64, void

from forerun.kernels.cpu.codegen.emitted import emitted
from forerun.kernels.cpu.codegen.lanes import GROUP_LEN, Emitter, Value, i64
from forerun.kernels.cpu.codegen.loops import loop
from forerun.kernels.cpu.codegen.machine import Machine
from forerun.kernels.cpu.products.decoders import Decoder


def make_expand(decoder: Decoder, machine: Machine) -> Any:
    """An intrinsic expand(row, num_blocks, out): addresses of the packed row and of the floats."""

    @emitted(void, int64, int64, int64)
    def expand(b: Any, row: Value, num_blocks: Value, out: Value) -> None:
        _emit(decoder, Emitter(b, machine), row, num_blocks, out)

    return expand


def _emit(decoder: Decoder, e: Emitter, row: Value, num_blocks: Value, out: Value) -> None:
    b = e.builder
    chunk_bytes = 4 * decoder.block_len // decoder.num_chunks

    def block_body(block: Value, _carried: list[Value]) -> list[Value]:
        packed = b.add(row, b.mul(block, i64(decoder.block_bytes)))
        target = b.add(out, b.mul(block, i64(4 * decoder.block_len)))

        def chunk_body(idx: Value, _carried: list[Value]) -> list[Value]:
            at = b.add(target, b.mul(idx, i64(chunk_bytes)))
            for g, group in enumerate(decoder.chunk(e, packed, idx)):
                e.store(group.weights(e), e.offset(at, 4 * GROUP_LEN * g))
            return []

        return loop(b, i64(decoder.num_chunks), [], chunk_body)

    loop(b, num_blocks, [], block_body)
