"""A tile of integer dot products: four outputs times some rows of digits (ARM).

The products of a block are summed as integers, exactly, so it does not matter to the bits which
of the two ways a tile takes:

    few rows     one sum per output in four lanes, and the lanes are added up
    more rows    weights are turned so that lane o belongs to output o: nothing is left to add up

Sums fit 32 bits: 32 products of at most 128 · 127·256. Blocks are added in ascending order, in
one float per output and row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from llvmlite import ir

from forerun.kernels.cpu.codegen.lanes import F32, I32, I64, Emitter, Value, constant, i64, vector
from forerun.kernels.cpu.codegen.loops import loop, when
from forerun.kernels.cpu.products.decoders import BYTES16, Decoder
from forerun.kernels.cpu.products.digits import BLOCK_LEN, DIGIT_BITS, RecordShape
from forerun.kernels.cpu.products.integer_weights import (
    NUM_OUTPUTS,
    ChunkOfFour,
    Run,
    by_output,
    turned,
)
from forerun.kernels.cpu.products.operands import Operands, row_of

MAX_ROWS: Final = {1: 16, 2: 8}  # of a tile, by the digits: their sums stay in registers
_OUTPUTS_AHEAD: Final = 8
_TURNED_FROM: Final = 3  # rows: turning costs as much as it saves in one or two
# Rows that the code generator may mix; mixing more of them spills sums to memory.
_MAX_MIXED: Final = 6
_MIXED: Final = 4  # of a tile with more rows
_MAX_PAIRED: Final = 2  # rows of a tile that has registers for two blocks at once
_INT4: Final = vector(I32, 4)
_ZERO: Final = _INT4([0] * 4)


@dataclass(frozen=True)
class DigitTile:
    """The sums of a row are one vector over the outputs."""

    decoder: Decoder
    chunk_of_four: ChunkOfFour
    num_rows: int
    e: Emitter
    o: Operands

    @property
    def shape(self) -> RecordShape:
        return RecordShape(self.e.machine.num_digits)

    @property
    def is_turned(self) -> bool:
        return self.num_rows >= _TURNED_FROM

    def emit(self) -> None:
        e = self.e
        zero = vector(F32, NUM_OUTPUTS)([0.0] * NUM_OUTPUTS)
        acc = self._blocks([zero] * self.num_rows)
        for row, total in enumerate(acc):
            e.store(total, row_of(e, self.o.y, self.o.y_stride, row))

    def _blocks(self, acc: list[Value]) -> list[Value]:
        """All blocks in ascending order; of few rows two in a turn, which wait less."""
        b, num_blocks = self.e.builder, self.o.num_blocks
        if self.num_rows > _MAX_PAIRED or self.decoder.num_chunks > 1:
            return loop(b, num_blocks, acc, self._block)
        num_pairs, last = b.sdiv(num_blocks, i64(2)), b.sub(num_blocks, i64(1))

        def pair(idx: Value, acc: list[Value]) -> list[Value]:
            first = b.mul(idx, i64(2))
            acc = self._block(first, acc)
            return self._block(b.add(first, i64(1)), acc, prefetch=False)

        is_long = b.icmp_signed(">", num_blocks, i64(1))
        is_odd = b.icmp_signed("==", b.and_(num_blocks, i64(1)), i64(1))
        acc = when(b, is_long, acc, lambda acc: loop(b, num_pairs, acc, pair))
        return when(b, is_odd, acc, lambda acc: self._block(last, acc))

    def _block(self, block: Value, acc: list[Value], *, prefetch: bool = True) -> list[Value]:
        e, b, d = self.e, self.e.builder, self.decoder
        first = b.add(self.o.w, b.mul(block, i64(d.block_bytes)))
        outputs = [row_of(e, first, self.o.w_stride, r) for r in range(NUM_OUTPUTS)]
        for output in outputs if prefetch else ():
            ahead = b.add(output, b.mul(self.o.w_stride, i64(_OUTPUTS_AHEAD)))
            for line in range(0, d.block_bytes, 64):
                e.prefetch(e.offset(ahead, line))
        records = d.block_len // BLOCK_LEN
        x = b.add(self.o.x, b.mul(block, i64(self.shape.num_bytes * records)))
        step = i64(self.shape.num_bytes * records // d.num_chunks)

        def body(idx: Value, acc: list[Value]) -> list[Value]:
            return self._chunk(outputs, b.add(x, b.mul(idx, step)), idx, acc)

        return body(i64(0), acc) if d.num_chunks == 1 else loop(b, i64(d.num_chunks), acc, body)

    def _chunk(self, outputs: list[Value], x: Value, idx: Value, acc: list[Value]) -> list[Value]:
        start = 0  # the first weight of the run
        arrange = turned if self.is_turned else by_output
        for run in self.chunk_of_four(self.e, outputs, idx, arrange):
            block, at = divmod(start, BLOCK_LEN)
            here = self.e.offset(x, self.shape.num_bytes * block)
            for row, total in enumerate(acc):
                record = row_of(self.e, here, self.o.x_stride, row)
                if self.num_rows > _MAX_MIXED and row >= _MIXED:
                    record = _after(self.e, record, acc[row // _MIXED * _MIXED - 1])
                acc[row] = self._row(run, record, at, total)
            start += 16 * len(run.quants[0])
        return acc

    def _row(self, run: Run, record: Value, at: int, acc: Value) -> Value:
        e, b = self.e, self.e.builder
        digits = [
            [
                e.load(e.offset(record, BLOCK_LEN * digit + at + 16 * piece), BYTES16)
                for piece in range(len(run.quants[0]))
            ]
            for digit in range(self.shape.num_digits)
        ]
        sums = self._turned_sums(run, digits) if self.is_turned else self._sums(run, digits)
        total = b.sitofp(sums, vector(F32, NUM_OUTPUTS))
        scale_and_sum = e.load(e.offset(record, self.shape.scale_at), vector(F32, 2))
        scale, block_sum = (
            e.shuffle(scale_and_sum, scale_and_sum, [i] * NUM_OUTPUTS) for i in (0, 1)
        )
        acc = e.fma(total, b.fmul(run.d, scale), acc)
        return acc if run.c is None else e.fma(run.c, block_sum, acc)

    def _sums(self, run: Run, digits: list[list[Value]]) -> Value:
        """Σ q·x of each output, in units of s."""
        sums = []
        for quants in run.quants:
            total = _ZERO
            for digit in digits:
                total = self._shifted(total)
                for q, x in zip(quants, digit, strict=True):
                    total = self._dot(total, q, x)
            sums.append(total)
        return self._pairwise(self._pairwise(*sums[:2]), self._pairwise(*sums[2:]))

    def _turned_sums(self, run: Run, digits: list[list[Value]]) -> Value:
        """The same from turned weights: four of x at a time meet all outputs."""
        e, b = self.e, self.e.builder
        total = _ZERO
        for digit in digits:
            total = self._shifted(total)
            for piece, x in enumerate(digit):
                fours = b.bitcast(x, _INT4)
                for idx, quants in enumerate(run.quants):
                    four = b.bitcast(e.shuffle(fours, fours, [idx] * 4), BYTES16)
                    total = self._dot(total, quants[piece], four)
        return total

    def _shifted(self, total: Value) -> Value:
        """By a digit, unless nothing is there yet."""
        if total is _ZERO:
            return total
        return self.e.builder.shl(total, constant(I32, [DIGIT_BITS] * 4))

    def _dot(self, acc: Value, left: Value, right: Value) -> Value:
        return self.e.intrinsic("aarch64.neon.sdot.v4i32.v16i8", _INT4, [acc, left, right])

    def _pairwise(self, left: Value, right: Value) -> Value:
        return self.e.intrinsic("aarch64.neon.addp.v4i32", _INT4, [left, right])


def _after(e: Emitter, address: Value, done: Value) -> Value:
    """The same address, of which the code generator believes that it needs `done`."""
    kind = ir.FunctionType(I64, [I64, done.type])
    return e.builder.call(ir.InlineAsm(kind, "", "=r,0,w"), [address, done])
