"""A tile of floats: some outputs times some rows, in registers."""

from __future__ import annotations

from dataclasses import dataclass

from forerun.kernels.cpu.codegen.lanes import GROUP_LEN, Emitter, Value, i64
from forerun.kernels.cpu.codegen.loops import loop
from forerun.kernels.cpu.products.decoders import Decoder
from forerun.kernels.cpu.products.operands import Operands, row_of


@dataclass(frozen=True)
class FloatTile:
    """y[row, output] = Σ w·x, in `num_lanes` partial sums each."""

    decoder: Decoder
    num_outputs: int
    num_rows: int
    e: Emitter
    o: Operands

    def emit(self) -> None:
        e = self.e
        zero = e.lanes([0.0] * e.machine.num_lanes)
        start = [zero] * (self.num_outputs * self.num_rows)
        acc = loop(e.builder, self.o.num_blocks, start, self._block)
        for idx, total in enumerate(acc):
            output, row = divmod(idx, self.num_rows)
            at = row_of(e, e.offset(self.o.y, 4 * output), self.o.y_stride, row)
            e.store(e.fold(total), at)

    def _block(self, block: Value, acc: list[Value]) -> list[Value]:
        b, d = self.e.builder, self.decoder
        first = b.add(self.o.w, b.mul(block, i64(d.block_bytes)))
        outputs = [row_of(self.e, first, self.o.w_stride, idx) for idx in range(self.num_outputs)]
        x = b.add(self.o.x, b.mul(block, i64(4 * d.block_len)))
        chunk_bytes = 4 * d.block_len // d.num_chunks

        def body(idx: Value, acc: list[Value]) -> list[Value]:
            return self._chunk(outputs, b.add(x, b.mul(idx, i64(chunk_bytes))), idx, acc)

        return body(i64(0), acc) if d.num_chunks == 1 else loop(b, i64(d.num_chunks), acc, body)

    def _chunk(self, outputs: list[Value], x: Value, idx: Value, acc: list[Value]) -> list[Value]:
        e = self.e
        groups = [self.decoder.chunk(e, address, idx) for address in outputs]
        for g in range(len(groups[0])):
            weights = [e.split(mine[g].weights(e)) for mine in groups]  # [output][vector]
            for v in range(len(weights[0])):
                at = e.offset(x, 4 * (GROUP_LEN * g + e.machine.num_lanes * v))
                for row in range(self.num_rows):
                    value = e.load(row_of(e, at, self.o.x_stride, row), e.lanes)
                    for output, mine in enumerate(weights):
                        place = output * self.num_rows + row
                        acc[place] = e.fma(mine[v], value, acc[place])
        return acc
