"""Activations in digits of 7 bits, and tiles of integer dot products over them (ARM).

    x = s · (128²·d₀ + 128·d₁ + d₂)     s = max|x| / (127·128²) over a block of 32 activations

That is 21 bits below the largest of a block: what float32 sums keep too. A record of a block holds
its digits, 32 bytes of each, then s and the block's sum. Sums of products are exact integers,
whatever the tile, and small enough for 32 bits: a lane adds 8 products of at most 128·127·128².
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from llvmlite import ir
from numba import int64, void

from forerun.kernels.cpu.decoders import BYTES16, Decoder
from forerun.kernels.cpu.emitted import emitted
from forerun.kernels.cpu.lanes import F32, I8, I32, Emitter, Machine, Value, constant, i64, vector
from forerun.kernels.cpu.loops import loop
from forerun.kernels.cpu.operands import Operands, row_of
from forerun.kernels.cpu.quads import NUM_OUTPUTS, ChunkOfFour, Run

NUM_DIGITS: Final = 3
BLOCK_LEN: Final = 32
_SCALE_AT: Final = BLOCK_LEN * NUM_DIGITS
_SUM_AT: Final = _SCALE_AT + 4
RECORD_BYTES: Final = BLOCK_LEN * NUM_DIGITS + 16
_MOST: Final = 127 * 128 ** (NUM_DIGITS - 1)
_OUTPUTS_AHEAD: Final = 32
_INT4: Final = vector(I32, 4)


@emitted(void, int64, int64)
def write_record(b: Any, x: Value, record: Value) -> None:
    """From the addresses of 32 floats and of a record."""
    _emit_record(Emitter(b, Machine.host()), x, record)


def _emit_record(e: Emitter, address: Value, record: Value) -> None:
    b = e.builder
    kind, wide = vector(F32, BLOCK_LEN), vector(I32, BLOCK_LEN)
    x = e.load(address, kind)
    largest = _reduced(e, "vector.reduce.fmaximum", e.call("fabs", kind, [x]), F32)
    inverse = b.fdiv(F32(float(_MOST)), largest)
    is_zero = b.fcmp_ordered("==", largest, F32(0.0))
    inverse = b.select(is_zero, F32(0.0), inverse)
    rounded = e.call("rint", kind, [b.fmul(x, e.splat(inverse, BLOCK_LEN))])
    whole = _saturated(e, rounded, wide)
    for idx, digit in enumerate(_digits(e, whole)):
        e.store(b.trunc(digit, vector(I8, BLOCK_LEN)), e.offset(record, BLOCK_LEN * idx))
    scale = b.fdiv(largest, F32(float(_MOST)))
    total = b.sitofp(_reduced(e, "vector.reduce.add", whole, I32), F32)
    e.store(scale, e.offset(record, _SCALE_AT))
    e.store(b.fmul(total, scale), e.offset(record, _SUM_AT))


def _digits(e: Emitter, whole: Value) -> list[Value]:
    """The first digit is -127 … 127, the others are -64 … 63."""
    b = e.builder
    half, seven = constant(I32, [64] * BLOCK_LEN), constant(I32, [7] * BLOCK_LEN)
    digits: list[Value] = []
    for _ in range(NUM_DIGITS - 1):
        rest = b.ashr(b.add(whole, half), seven)
        digits.append(b.sub(whole, b.shl(rest, seven)))
        whole = rest
    return [whole, *reversed(digits)]


def _reduced(e: Emitter, name: str, value: Value, result: Any) -> Value:
    suffix = f"v{value.type.count}{'f' if result == F32 else 'i'}32"
    return _intrinsic(e, f"llvm.{name}.{suffix}", result, [value])


def _saturated(e: Emitter, value: Value, kind: Any) -> Value:
    name = f"llvm.fptosi.sat.v{kind.count}i32.v{kind.count}f32"
    return _intrinsic(e, name, kind, [value])


def _intrinsic(e: Emitter, name: str, result: Any, args: list[Value]) -> Value:
    module = e.builder.module
    signature = ir.FunctionType(result, [arg.type for arg in args])
    function = module.globals.get(name) or ir.Function(module, signature, name)
    return e.builder.call(function, args)


@dataclass(frozen=True)
class DigitTile:
    """Four outputs times some rows; the sums of a row are one vector over the outputs."""

    decoder: Decoder
    chunk_of_four: ChunkOfFour
    num_rows: int
    e: Emitter
    o: Operands

    def emit(self) -> None:
        e = self.e
        zero = vector(F32, NUM_OUTPUTS)([0.0] * NUM_OUTPUTS)
        acc = loop(e.builder, self.o.num_blocks, [zero] * self.num_rows, self._block)
        for row, total in enumerate(acc):
            e.store(total, row_of(e, self.o.y, self.o.y_stride, row))

    def _block(self, block: Value, acc: list[Value]) -> list[Value]:
        e, b, d = self.e, self.e.builder, self.decoder
        first = b.add(self.o.w, b.mul(block, i64(d.block_bytes)))
        outputs = [row_of(e, first, self.o.w_stride, r) for r in range(NUM_OUTPUTS)]
        if self.num_rows <= 2:  # more rows wait for arithmetic, not for memory
            for output in outputs:
                e.prefetch(b.add(output, b.mul(self.o.w_stride, i64(_OUTPUTS_AHEAD))))
        records = d.block_len // BLOCK_LEN
        x = b.add(self.o.x, b.mul(block, i64(RECORD_BYTES * records)))
        step = i64(RECORD_BYTES * records // d.num_chunks)

        def body(idx: Value, acc: list[Value]) -> list[Value]:
            return self._chunk(outputs, b.add(x, b.mul(idx, step)), idx, acc)

        return body(i64(0), acc) if d.num_chunks == 1 else loop(b, i64(d.num_chunks), acc, body)

    def _chunk(self, outputs: list[Value], x: Value, idx: Value, acc: list[Value]) -> list[Value]:
        start = 0  # the first weight of the run
        for run in self.chunk_of_four(self.e, outputs, idx):
            record, at = divmod(start, BLOCK_LEN)
            here = self.e.offset(x, RECORD_BYTES * record)
            acc = [self._row(run, here, at, row, total) for row, total in enumerate(acc)]
            start += 16 * len(run.quants[0])
        return acc

    def _row(self, run: Run, record: Value, at: int, row: int, acc: Value) -> Value:
        e, b = self.e, self.e.builder
        mine = row_of(e, record, self.o.x_stride, row)
        pieces = range(len(run.quants[0]))
        digits = [
            [e.load(e.offset(mine, BLOCK_LEN * digit + at + 16 * i), BYTES16) for i in pieces]
            for digit in range(NUM_DIGITS)
        ]
        sums = [self._product(quants, digits) for quants in run.quants]
        pairs = [self._pairwise(sums[0], sums[1]), self._pairwise(sums[2], sums[3])]
        total = b.sitofp(self._pairwise(*pairs), vector(F32, NUM_OUTPUTS))
        scale = e.splat(e.load(e.offset(mine, _SCALE_AT), F32), NUM_OUTPUTS)
        acc = e.fma(total, b.fmul(run.d, scale), acc)
        if run.c is None:
            return acc
        return e.fma(run.c, e.splat(e.load(e.offset(mine, _SUM_AT), F32), NUM_OUTPUTS), acc)

    def _product(self, quants: list[Value], digits: list[list[Value]]) -> Value:
        """Σ q·x in units of s, in four lanes: digit by digit, the highest first."""
        total = _INT4([0] * 4)
        for idx, digit in enumerate(digits):
            if idx:
                total = self.e.builder.shl(total, constant(I32, [7] * 4))
            for q, x in zip(quants, digit, strict=True):
                total = self._dot(total, q, x)
        return total

    def _dot(self, acc: Value, left: Value, right: Value) -> Value:
        return _intrinsic(self.e, "llvm.aarch64.neon.sdot.v4i32.v16i8", _INT4, [acc, left, right])

    def _pairwise(self, left: Value, right: Value) -> Value:
        return _intrinsic(self.e, "llvm.aarch64.neon.addp.v4i32", _INT4, [left, right])
