"""Products of 16 rows or more by AMX: 16 rows of digits times 16 outputs in one instruction.

Weights of a few outputs are unpacked once for all rows, into memory of the thread's own:

    scratch   tile configuration | sums, 1 KB a digit | outputs 0 … 15 | outputs 16 … 31 | …
    outputs   of each run: bytes, four of every output in a row | d | c where there is one

The sums of a run are exact integers as in `digit_tile`, and what follows them is the same chain of
floats, so the bits are the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from llvmlite import ir

from forerun.kernels.cpu.codegen.lanes import F32, I8, I32, Emitter, Value, constant, i64, vector
from forerun.kernels.cpu.codegen.loops import loop
from forerun.kernels.cpu.products.decoders import Decoder
from forerun.kernels.cpu.products.digits import BLOCK_LEN, DIGIT_BITS, RecordShape
from forerun.kernels.cpu.products.integer_weights import Chunk, Run, TiledBlocks
from forerun.kernels.cpu.products.operands import Operands, row_of

AMX_ROWS: Final = 16
_NUM_OUTPUTS: Final = 16
_LINE: Final = 64  # bytes of 16 floats, or of four weights of 16 outputs
_SUMS_AT: Final = 64
_SUM_BYTES: Final = AMX_ROWS * _LINE
_OUTPUTS_AT: Final = _SUMS_AT + 2 * _SUM_BYTES
_SUMS, _DIGITS, _WEIGHTS = 0, 2, 4  # tile registers; two each of the first two kinds
_FLOATS: Final = vector(F32, _NUM_OUTPUTS)


def amx_scratch_bytes(decoder: Decoder, num_blocks: int, num_outputs: int) -> int:
    """What a product needs: at most a scale and a constant for 16 weights."""
    num_tiles = -(-num_outputs // _NUM_OUTPUTS)
    lines = num_blocks * decoder.block_len // 16 * (4 + 2)
    return _LINE + _OUTPUTS_AT + num_tiles * lines * _LINE


@dataclass(frozen=True)
class _RunShape:
    num_weights: int
    has_constant: bool
    offset: int

    @property
    def num_lines(self) -> int:
        return self.num_weights // 4 + 1 + self.has_constant


@dataclass(frozen=True)
class AmxProduct:
    decoder: Decoder
    chunk: Chunk
    e: Emitter
    o: Operands
    num_rows: Value  # at least 16
    num_outputs: Value  # at least 16
    scratch: Value  # begins at a cache line

    @property
    def shape(self) -> RecordShape:
        return RecordShape(self.e.machine.num_digits)

    @property
    def num_chunks(self) -> Value:
        """Of all blocks of an output."""
        return self.e.builder.mul(self.o.num_blocks, i64(self.decoder.num_chunks))

    def emit(self) -> None:
        e, b = self.e, self.e.builder
        num_tiles, num_row_tiles = (
            b.sdiv(b.add(count, i64(15)), i64(16)) for count in (self.num_outputs, self.num_rows)
        )
        runs: list[_RunShape] = []

        def unpack(tile: Value, _carried: list[Value]) -> list[Value]:
            runs[:] = self._unpack(tile)
            return []

        loop(b, num_tiles, [], unpack)
        self._configure(runs[0].num_weights)

        def rows(idx: Value, _carried: list[Value]) -> list[Value]:
            row = self._moved_back(idx, self.num_rows)
            loop(b, num_tiles, [], lambda tile, _: self._tile(runs, row, tile))
            return []

        loop(b, num_row_tiles, [], rows)
        e.intrinsic("x86.tilerelease", ir.VoidType(), [])

    def _moved_back(self, idx: Value, count: Value) -> Value:
        """The first of 16; a last 16 that would not fit lie over their neighbours."""
        b, first = self.e.builder, self.e.builder.mul(idx, i64(16))
        last = b.sub(count, i64(16))
        return b.select(b.icmp_signed("<", first, last), first, last)

    def _unpack(self, tile: Value) -> list[_RunShape]:
        e, b, d = self.e, self.e.builder, self.decoder
        w = b.add(self.o.w, b.mul(b.mul(tile, i64(_NUM_OUTPUTS)), self.o.w_stride))
        shapes: list[_RunShape] = []

        def block(idx: Value, _carried: list[Value]) -> list[Value]:
            blocks = TiledBlocks(
                e, b.add(w, b.mul(idx, i64(d.block_bytes * _NUM_OUTPUTS))), _NUM_OUTPUTS
            )

            def chunk(at: Value, _carried: list[Value]) -> list[Value]:
                runs = self.chunk(e, blocks, at)
                shapes[:] = map(_shape_of, runs)
                place = b.add(b.mul(idx, i64(d.num_chunks)), at)
                here = b.add(self._outputs(tile, shapes), b.mul(place, i64(_num_bytes(shapes))))
                for line, value in enumerate(line for run in runs for line in _lines(e, run)):
                    e.store(value, e.offset(here, _LINE * line))
                return []

            return loop(b, i64(d.num_chunks), [], chunk)

        loop(b, self.o.num_blocks, [], block)
        return shapes

    def _outputs(self, tile: Value, runs: list[_RunShape]) -> Value:
        """Where the unpacked weights of a tile lie."""
        b = self.e.builder
        size = b.mul(self.num_chunks, i64(_num_bytes(runs)))
        return b.add(self.e.offset(self.scratch, _OUTPUTS_AT), b.mul(tile, size))

    def _configure(self, num_weights: int) -> None:
        """Palette 1; the bytes of a row and the number of rows of each tile register."""
        e = self.e
        sizes = {
            _SUMS: (_LINE, 16),
            _DIGITS: (num_weights, 16),
            _WEIGHTS: (_LINE, num_weights // 4),
        }
        row_bytes, num_rows = [0] * 16, [0] * 16
        for first, (width, height) in sizes.items():
            for register in (first, first + 1):
                row_bytes[register], num_rows[register] = width, height
        halves = [b for width in row_bytes for b in (width & 255, width >> 8)]
        config = [1, *[0] * 15, *halves, *num_rows]
        e.store(constant(I8, config), self.scratch)
        e.intrinsic("x86.ldtilecfg", ir.VoidType(), [e.pointer(self.scratch, I8)])

    def _tile(self, runs: list[_RunShape], row: Value, tile: Value) -> list[Value]:
        e, b = self.e, self.e.builder
        x = b.add(self.o.x, b.mul(row, self.o.x_stride))
        w = self._outputs(tile, runs)
        records = self.decoder.block_len // BLOCK_LEN // self.decoder.num_chunks
        x_step, w_step = i64(records * self.shape.num_bytes), i64(_num_bytes(runs))

        def chunk(idx: Value, acc: list[Value]) -> list[Value]:
            here, start = b.add(w, b.mul(idx, w_step)), 0
            for run in runs:
                block, at = divmod(start, BLOCK_LEN)
                record = e.offset(b.add(x, b.mul(idx, x_step)), self.shape.num_bytes * block)
                acc = self._run(run, here, record, at, acc)
                here, start = e.offset(here, _LINE * run.num_lines), start + run.num_weights
            return acc

        acc = loop(b, self.num_chunks, [_FLOATS([0.0] * _NUM_OUTPUTS)] * AMX_ROWS, chunk)
        first = self._moved_back(tile, self.num_outputs)
        y = b.add(b.add(self.o.y, b.mul(row, self.o.y_stride)), b.mul(first, i64(4)))
        for idx, total in enumerate(acc):
            e.store(total, row_of(e, y, self.o.y_stride, idx))
        return []

    def _run(
        self, run: _RunShape, w: Value, record: Value, at: int, acc: list[Value]
    ) -> list[Value]:
        e, b = self.e, self.e.builder
        self._multiply(w, record, at)
        scales_at = run.num_weights // 4 * _LINE
        d, c = (e.load(e.offset(w, scales_at + _LINE * i), _FLOATS) for i in (0, 1))
        totals = []
        for row, total in enumerate(acc):
            mine = row_of(e, record, self.o.x_stride, row)
            sums = b.sitofp(self._sums(run, mine, at, row), _FLOATS)
            scale = e.splat(e.load(e.offset(mine, self.shape.scale_at), F32), _NUM_OUTPUTS)
            total = e.fma(sums, b.fmul(d, scale), total)
            if run.has_constant:
                block_sum = e.load(e.offset(mine, self.shape.scale_at + 4), F32)
                total = e.fma(c, e.splat(block_sum, _NUM_OUTPUTS), total)
            totals.append(total)
        return totals

    def _multiply(self, w: Value, record: Value, at: int) -> None:
        """The sums of 16 rows and 16 outputs, of each digit, in memory."""
        e = self.e
        self._move("tileloadd64", _WEIGHTS, w, i64(_LINE))
        for digit in range(self.shape.num_digits):
            sums, digits = _SUMS + digit, _DIGITS + digit
            self._move(
                "tileloadd64", digits, e.offset(record, BLOCK_LEN * digit + at), self.o.x_stride
            )
            e.intrinsic("x86.tilezero", ir.VoidType(), [I8(sums)])
            registers = [I8(sums), I8(digits), I8(_WEIGHTS)]
            e.intrinsic("x86.tdpbsud", ir.VoidType(), registers)  # signed digits, unsigned weights
            self._move("tilestored64", sums, self._sums_at(digit, 0), i64(_LINE))

    def _move(self, name: str, register: int, address: Value, stride: Value) -> None:
        args = [I8(register), self.e.pointer(address, I8), stride]
        self.e.intrinsic(f"x86.{name}", ir.VoidType(), args)

    def _sums(self, run: _RunShape, record: Value, at: int, row: int) -> Value:
        e, b, kind = self.e, self.e.builder, vector(I32, _NUM_OUTPUTS)
        digits = [e.load(self._sums_at(i, row), kind) for i in range(self.shape.num_digits)]
        total = digits[0]
        for low in digits[1:]:
            total = b.add(b.shl(total, constant(I32, [DIGIT_BITS] * _NUM_OUTPUTS)), low)
        if run.offset:
            first = at if run.num_weights < BLOCK_LEN else 0
            place = e.offset(record, self.shape.correction_at(run.offset, first))
            total = b.add(total, e.splat(e.load(place, I32), _NUM_OUTPUTS))
        return total

    def _sums_at(self, digit: int, row: int) -> Value:
        return self.e.offset(self.scratch, _SUMS_AT + _SUM_BYTES * digit + _LINE * row)


def _shape_of(run: Run) -> _RunShape:
    return _RunShape(16 * len(run.quants[0]), run.c is not None, run.offset)


def _num_bytes(runs: list[_RunShape]) -> int:
    return _LINE * sum(run.num_lines for run in runs)


def _lines(e: Emitter, run: Run) -> list[Value]:
    """A run as it lies in memory; its bytes without a sign."""
    weights = [fours[piece] for piece in range(len(run.quants[0])) for fours in run.quants]
    if run.offset == 128:
        weights = [e.builder.xor(each, constant(I8, [-128] * _LINE)) for each in weights]
    return [*weights, run.d, *([] if run.c is None else [run.c])]
