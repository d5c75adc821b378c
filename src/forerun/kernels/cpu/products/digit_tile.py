"""A tile of integer dot products: as many outputs as a vector has int32, times rows of digits.

The products of a block are summed as integers, exactly. So neither the instruction nor the layout
of the sums changes a bit:

    most tiles         lane o is output o: four weights of every output times four digits
    two rows, i8mm     a vector has the sums of two outputs and two rows

Weights are interleaved in memory, so that a vector over the outputs is one load. Sums fit 32 bits:
32 products of at most 128 · 127·256. Blocks are added in ascending order, in one float per output
and row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from llvmlite import ir

from forerun.kernels.cpu.codegen.lanes import (
    F32,
    I8,
    I32,
    I64,
    Emitter,
    Value,
    constant,
    i64,
    vector,
)
from forerun.kernels.cpu.codegen.loops import loop
from forerun.kernels.cpu.codegen.scalar import ROUND
from forerun.kernels.cpu.products.blocks import BYTES16, TiledBlocks
from forerun.kernels.cpu.products.digits import BLOCK_LEN, DIGIT_BITS, RecordShape, first_sum
from forerun.kernels.cpu.products.dots import DOTS, DOTS_OF_BYTES, smmla
from forerun.kernels.cpu.products.formats import PACKED, SIGNED_TILES, Format
from forerun.kernels.cpu.products.integer_weights import CHUNKS, SIGNED_CHUNKS, Run
from forerun.kernels.cpu.products.operands import Operands, row_of

# How far ahead weights are prefetched: they are read in sequence. On ARM a tile of one row does not
# prefetch, because it has too little work to overlap.
_BYTES_AHEAD, _BYTES_AHEAD_IN_PARTS, _BYTES_AHEAD_ARM = 4096, 6144, 1536
_LINE: Final = 64
_MIXED: Final = 4  # rows whose instructions LLVM may interleave on ARM: more would spill sums
_INT4: Final = vector(I32, 4)
_LOWER, _UPPER = ([*range(at, at + 8), *range(16 + at, 24 + at)] for at in (0, 8))


@dataclass(frozen=True)
class DigitTile:
    """Emits the code of one tile. The sums of a row are one vector over the outputs."""

    weight_format: str
    num_rows: int
    e: Emitter
    o: Operands

    @property
    def layout(self) -> Format:
        return (SIGNED_TILES if self.is_arm else PACKED)[self.weight_format]

    @property
    def shape(self) -> RecordShape:
        return RecordShape(self.e.machine.num_digits)

    @property
    def num_outputs(self) -> int:
        return self.e.machine.instructions.num_outputs

    @property
    def is_arm(self) -> bool:
        return self.e.machine.instructions.is_signed

    @property
    def has_matrices(self) -> bool:
        """Whether there is an instruction that multiplies two rows with two outputs."""
        return self.e.machine.instructions.name == "i8mm"

    @property
    def asks_in_parts(self) -> bool:
        """Whether weights are prefetched a few cache lines at a time, not a block at a time. A core
        can wait for a dozen lines at once. A block of the K formats has 18 to 53 on x86: requested
        together, they delay the arithmetic until most have arrived."""
        return self.layout.num_chunks > 1 and not self.is_arm

    @property
    def num_together(self) -> int:
        """How many rows' chains of dot products are interleaved, so that no chain waits for itself.

        With 1, there are too few registers for it, or LLVM interleaves them.
        """
        if self.has_matrices:
            return 2
        return self.num_rows if self.num_outputs == 16 else 1

    def emit(self) -> None:
        e = self.e
        zero = vector(F32, self.num_outputs)([0.0] * self.num_outputs)
        for row in range(self.num_rows):
            e.prefetch(row_of(e, self.o.y, self.o.y_stride, row), to_write=True)
        acc = loop(e.builder, self.o.num_blocks, [zero] * self.num_rows, self._block)
        for row, total in enumerate(acc):
            e.store(total, row_of(e, self.o.y, self.o.y_stride, row))

    def _block(self, block: Value, acc: list[Value]) -> list[Value]:
        b, d = self.e.builder, self.layout
        blocks = self._tiled_blocks(block)
        records = d.block_len // BLOCK_LEN
        x = b.add(self.o.x, b.mul(block, b.mul(self.o.x_stride, i64(records))))
        step = b.mul(self.o.x_stride, i64(records // d.num_chunks))

        def body(idx: Value, acc: list[Value]) -> list[Value]:
            return self._chunk(blocks, b.add(x, b.mul(idx, step)), idx, acc)

        if d.num_chunks == 1 or self.is_arm:
            for idx in range(d.num_chunks):  # unrolled: the places of scales are constants
                acc = body(i64(idx), acc)
            return acc
        return loop(b, i64(d.num_chunks), acc, body)

    def _chunk(self, blocks: TiledBlocks, x: Value, idx: Value, acc: list[Value]) -> list[Value]:
        e, start = self.e, 0  # the first weight of the run
        chunks = SIGNED_CHUNKS if self.is_arm else CHUNKS
        ask = self._asking(blocks.address, idx) if self.asks_in_parts else _ask_nothing
        for run in chunks[self.weight_format](e, blocks, idx):
            block, at = divmod(start, BLOCK_LEN)
            here = row_of(e, x, self.o.x_stride, block)
            for first in range(0, self.num_rows, self.num_together):
                rows = range(first, min(first + self.num_together, self.num_rows))
                records = [e.offset(here, self.shape.num_bytes * row) for row in rows]
                if self.is_arm and first >= _MIXED:
                    records = [_after(e, r, acc[first // _MIXED * _MIXED - 1]) for r in records]
                sums = self._sums(run, records, at, ask if first == 0 else _ask_nothing)
                for row, record, total in zip(rows, records, sums, strict=True):
                    acc[row] = self._added(run, record, total, acc[row])
            start += 16 * len(run.quants[0])
        return acc

    def _tiled_blocks(self, block: Value) -> TiledBlocks:
        e, b = self.e, self.e.builder
        num_bytes = self.layout.block_bytes * self.num_outputs
        first = b.add(self.o.w, b.mul(block, i64(num_bytes)))
        ahead = _BYTES_AHEAD_ARM if self.is_arm else _BYTES_AHEAD
        asks_here = not self.asks_in_parts and (not self.is_arm or self.num_rows > 1)
        for line in range(0, num_bytes, _LINE) if asks_here else ():
            e.prefetch(e.offset(first, ahead + line))
        return TiledBlocks(e, first, self.num_outputs)

    def _asking(self, block: Value, idx: Value) -> Callable[[], None]:
        """Return a function that is called once for every four weights of a chunk. Over a chunk, it
        prefetches as many bytes as the chunk has, further ahead."""
        e, b, d = self.e, self.e.builder, self.layout
        num_bytes = d.block_bytes * self.num_outputs // d.num_chunks
        num_lines = -(-num_bytes // _LINE)
        num_calls = d.block_len // d.num_chunks // 4 * self.shape.num_digits
        first = e.offset(b.add(block, b.mul(idx, i64(num_bytes))), _BYTES_AHEAD_IN_PARTS)
        parts = iter([num_lines * call // num_calls for call in range(num_calls + 1)])
        done = next(parts)

        def ask() -> None:
            nonlocal done
            start, done = done, next(parts)
            for line in range(start, done):
                e.prefetch(e.offset(first, _LINE * line))

        return ask

    def _added(self, run: Run, record: Value, sums: Value, acc: Value) -> Value:
        e = self.e
        scale, block_sum = self._factors(record)
        acc = acc if run.c is None else e.fma(run.c, block_sum, acc)  # needs no integer sum yet
        return e.fma(self._scaled(run, sums), scale, acc)

    def _scaled(self, run: Run, sums: Value) -> Value:
        """Convert integer sums to floats, times the scale of the weights."""
        e, b, kind = self.e, self.e.builder, vector(F32, self.num_outputs)
        if not first_sum(e.machine):
            return b.fmul(b.sitofp(sums, kind), run.d)
        # The scale has 19 bits at most, so `excess` is exact, and the result is rounded once.
        excess = b.fmul(run.d, constant(F32, [-ROUND] * self.num_outputs))
        return e.fma(b.bitcast(sums, kind), run.d, excess)

    def _factors(self, record: Value) -> tuple[Value, Value]:
        """Load a row's scale and the sum of its block, each copied to every output's lane."""
        e, num, at = self.e, self.num_outputs, self.shape.scale_at
        if self.is_arm:  # its multiplications can take one lane of a register
            both = e.load(e.offset(record, at), vector(F32, 2))
            return e.shuffle(both, both, [0] * num), e.shuffle(both, both, [1] * num)
        scale, block_sum = (e.load(e.offset(record, at + 4 * i), F32) for i in (0, 1))
        return e.splat(scale, num), e.splat(block_sum, num)

    def _sums(
        self, run: Run, records: list[Value], at: int, ask: Callable[[], None]
    ) -> list[Value]:
        """Return Σ q·x of each output, in units of s, for each row."""
        if self.has_matrices and len(records) == 2:
            return self._crossed_sums(run, records, at)
        return self._turned_sums(run, records, at, ask)

    def _crossed_sums(self, run: Run, records: list[Value], at: int) -> list[Value]:
        """Return the sums of two rows: eight bytes of each times eight of two outputs at a time."""
        e, b = self.e, self.e.builder
        sums = [self._first()] * 2  # of outputs 0 and 1, and of 2 and 3
        for digit in range(self.shape.num_digits):
            sums = [self._shifted(total) for total in sums] if digit else sums
            for piece in range(len(run.quants[0])):
                start = BLOCK_LEN * digit + at + 16 * piece
                rows = [e.load(e.offset(record, start), BYTES16) for record in records]
                fours = [self._signed(run, quants[piece]) for quants in run.quants]
                for half, order in enumerate((_LOWER, _UPPER)):
                    x = e.shuffle(rows[0], rows[1], order)
                    left, right = (b.bitcast(fours[2 * half + i], _INT4) for i in (0, 1))
                    for pair, outputs in enumerate(([0, 4, 1, 5], [2, 6, 3, 7])):
                        q = b.bitcast(e.shuffle(left, right, outputs), BYTES16)
                        sums[pair] = smmla(e, sums[pair], q, x)
        return [e.shuffle(sums[0], sums[1], [row, row + 2, row + 4, row + 6]) for row in (0, 1)]

    def _turned_sums(
        self, run: Run, records: list[Value], at: int, ask: Callable[[], None]
    ) -> list[Value]:
        """Return the sums of each row: four digits at a time times four weights of every output."""
        e, num_digits = self.e, self.shape.num_digits
        totals = [self._first()] * len(records)
        for digit in range(num_digits):
            highs = totals if digit else []
            # ARM continues the same sums; x86 has a chain for each digit, to wait less.
            if self.is_arm and highs:
                totals = [self._shifted(high) for high in highs]
            else:
                totals = [self._first()] * len(records)
            if digit == num_digits - 1:
                both = zip(records, totals, strict=True)
                totals = [self._corrected(run, record, at, total) for record, total in both]
            for piece in range(len(run.quants[0])):
                for idx, quants in enumerate(run.quants):
                    ask()
                    for row, record in enumerate(records):
                        start = e.offset(record, BLOCK_LEN * digit + at + 16 * piece)
                        four = self._four(start, idx)
                        totals[row] = self._dot(run, totals[row], quants[piece], four)
            if highs and not self.is_arm:
                both = zip(highs, totals, strict=True)
                totals = [e.builder.add(self._shifted(high), total) for high, total in both]
        return totals

    def _four(self, start: Value, idx: int) -> Value:
        """Load bytes 4·idx … 4·idx + 3 of 16, copied to every output's lane."""
        e, b = self.e, self.e.builder
        if self.is_arm:  # SDOT can take one of a register's four lanes
            fours = e.load(start, _INT4)
            return b.bitcast(e.shuffle(fours, fours, [idx] * 4), BYTES16)
        four = e.splat(e.load(e.offset(start, 4 * idx), I32), self.num_outputs)
        return b.bitcast(four, vector(I8, 4 * self.num_outputs))

    def _first(self) -> Value:
        return constant(I32, [first_sum(self.e.machine)] * self.num_outputs)

    def _corrected(self, run: Run, record: Value, at: int, total: Value) -> Value:
        """Return the start of a sum that corrects for the weights' offset, if they have one."""
        if not run.offset or self.is_arm:
            return total
        first = at if len(run.quants[0]) == 1 else 0
        place = self.e.offset(record, self.shape.correction_at(run.offset, first))
        return self.e.splat(self.e.load(place, I32), self.num_outputs)  # includes `first_sum`

    def _shifted(self, total: Value) -> Value:
        """Shift a sum by the bits of a digit."""
        return self.e.builder.shl(total, constant(I32, [DIGIT_BITS] * total.type.count))

    def _dot(self, run: Run, sums: Value, weights: Value, digits: Value) -> Value:
        dots = DOTS_OF_BYTES if run.offset == 128 else DOTS
        dot = dots[self.e.machine.instructions.name]
        return dot(self.e, sums, self._signed(run, weights), digits)

    def _signed(self, run: Run, weights: Value) -> Value:
        """Subtract the weights' offset on ARM, whose products take signed bytes."""
        if not self.is_arm or run.offset not in (8, 32):
            return weights
        offset = constant(I8, [run.offset] * weights.type.count)
        return self.e.builder.sub(weights, offset)


def _ask_nothing() -> None:
    """Prefetch nothing: the weights are prefetched elsewhere."""


def _after(e: Emitter, address: Value, done: Value) -> Value:
    """Return the same address, with a false dependency on `done`, so that LLVM keeps this order."""
    kind = ir.FunctionType(I64, [I64, done.type])
    return e.builder.call(ir.InlineAsm(kind, "", "=r,0,w"), [address, done])
