"""The CPU kernel set, compiled by Numba; it computes on weights in the file's own formats.

Activations are float32. For products with packed weights they are rounded to 8 bits, or to 16
(`products/digits.py`). Operations are recorded, and run together when the logits are needed.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from forerun.errors import InvalidOption
from forerun.kernels.base import AttentionShape, Body, ChainNoise, Given, Norm, WeightSource
from forerun.kernels.cpu.attending import Attending
from forerun.kernels.cpu.attention.kv_store import KVStore
from forerun.kernels.cpu.chain_steps import ChainSteps
from forerun.kernels.cpu.codegen.code_cache import CodeCache
from forerun.kernels.cpu.codegen.compiled import check_processor, code_key
from forerun.kernels.cpu.codegen.machine import ROW_TYPES, Machine
from forerun.kernels.cpu.draws.drawing import Drawing
from forerun.kernels.cpu.library import Library, Operations
from forerun.kernels.cpu.products.digits import GROUP_ROWS
from forerun.kernels.cpu.products.formats import PACKED
from forerun.kernels.cpu.row_digits import RowDigits
from forerun.kernels.cpu.runtime.batch import CpuBatch, RopeTable
from forerun.kernels.cpu.runtime.kinds import Kind, kinds_of
from forerun.kernels.cpu.runtime.program import Buffers, KeptProgram, Program, Rows, float_bits
from forerun.kernels.cpu.runtime.replay import MAX_TOKENS, Replays
from forerun.kernels.cpu.runtime.workers import Workers
from forerun.kernels.cpu.weights.interleave import Tiles
from forerun.kernels.cpu.weights.load_report import LoadReport, Progress
from forerun.kernels.cpu.weights.loader import QUANTIZATIONS, Loader, Matrix, Part, Vector
from forerun.kernels.plan import Plan
from forerun.kernels.scores import Scores
from forerun.option_checks import require_known
from forerun.sampling import CoupledDraws
from forerun.types import FloatArray, IntArray
from forerun.usable_cores import resolved_num_threads

F32 = npt.NDArray[np.float32]
_NO_BLOCKS: Final = "no matrix has rows that divide into blocks of 32"


class CpuKernels(Attending, ChainSteps, Drawing):
    """The kernel set `cpu`; docs/cpu-kernels.md explains its design.

    `activations="int16"` rounds activations to 16 bits, not 8, for products with packed weights.
    `kv_cache_dtype` sets the type of keys and values (`row_type`). `instruction_set` is one of
    `machine.X86` or `machine.ARM`, by default the best that the processor has. `cache_dir` keeps
    compiled code between runs; `progress` is called with what is being compiled or packed.
    """

    name: Final = "cpu"
    begins_early: Final = False
    begins_rounds: Final = False

    def __init__(
        self,
        num_threads: int | None = None,
        *,
        quantization: str | None = None,
        activations: str | None = None,
        kv_cache_dtype: str = "auto",
        cache_dir: str | Path | None = None,
        progress: Progress | None = None,
        instruction_set: str | None = None,
        machine: Machine | None = None,
    ) -> None:
        if quantization is not None:
            require_known("quantization", QUANTIZATIONS, quantization)
        require_known("kv_cache_dtype", ("auto", *ROW_TYPES), kv_cache_dtype)
        num_threads = resolved_num_threads(num_threads)
        check_processor()
        self._activations, self._kv_cache_dtype = activations, kv_cache_dtype
        self._quantization = quantization
        self._machine = (machine or _host(instruction_set)).with_activations(activations)
        key = code_key(self._machine)
        kept = None if cache_dir is None else CodeCache.open(Path(cache_dir), key)
        self._library = Library(self._machine, kept, progress)
        self._workers = Workers(self._library.entry, num_threads)
        self._buffers = Buffers()
        self._kept_buffers = Buffers()  # recordings share them
        self._replays = Replays(self._workers)
        self._report = LoadReport(progress)
        self._loader = Loader(quantization, self._report)
        self._tiles = Tiles(self._machine.instructions)
        self._ropes: dict[bytes, RopeTable] = {}
        self._digits = RowDigits(self._library, self._machine.num_digits)

    @cached_property
    def _operations(self) -> Operations:
        """Operations of whole passes, compiled on first use: products alone need none of them."""
        return self._library.operations()

    @property
    def num_threads(self) -> int:
        return self._workers.num_threads

    @contextmanager
    def loading(self, num_tensors: int) -> Iterator[None]:
        with self._report.of(num_tensors):
            # Compile now, with progress shown, not during the first request.
            _ = self._operations, self._row_draws, self._weight_sum, self._coupled_draw
            yield
            self._check_effect()
            _ = self._row_operations

    def _check_effect(self) -> None:
        """Reject `activations`, and warn of `quantization`, if no loaded weight is affected."""
        if self._activations is not None and not self._digits.are_needed:
            remedy = "; drop them, or pack the weights with quantization."
            if self._quantization is not None:
                remedy = f", and quantization packs none: {_NO_BLOCKS}; drop both."
            raise InvalidOption(
                f"activations {self._activations!r} change nothing where all weights are floats"
                f"{remedy}"
            )
        if self._quantization is not None and not self._report.num_quantized:
            why = "the weights are packed already" if self._digits.are_needed else _NO_BLOCKS
            warnings.warn(
                f"quantization {self._quantization!r} packs nothing: {why}; drop it.",
                RuntimeWarning,
                stacklevel=4,
            )

    def load_vector(self, source: WeightSource, name: str) -> Vector:
        return self._loader.vector(source, name)

    def load_matrix(
        self, source: WeightSource, names: Sequence[str], biases: Sequence[str] = ()
    ) -> Matrix:
        matrix = self._loader.matrix(source, names, biases)
        matrix = replace(matrix, parts=tuple(map(self._tiled, matrix.parts)))
        for part in matrix.parts:
            self._library.linear(part.weight_format)  # compile now, with progress shown
            if part.weight_format in PACKED:
                self._digits.need()
        return matrix

    def _tiled(self, part: Part) -> Part:
        return replace(part, tiling=self._tiles) if part.weight_format in PACKED else part

    @property
    def begins_plain(self) -> bool:
        return self.num_threads > 1  # the others work while one runs Python

    @property
    def head_start(self) -> float:
        return self._replays.head_start

    def free_bytes(self) -> None:
        return None

    def rows(self, array: npt.ArrayLike) -> Rows:
        """Copy [T, width] into rows that operations accept."""
        values = np.asarray(array, np.float32)
        rows = Rows(Program(self._workers, self._buffers), *values.shape)
        rows.fill(values)
        return rows

    def begin(
        self,
        plan: Plan,
        shape: AttentionShape,
        inv_freq: FloatArray,
        given: Given = (),
        noise: ChainNoise | None = None,
    ) -> CpuBatch:
        rope = self._ropes.get(known := inv_freq.tobytes())
        if rope is None:
            rope = self._ropes[known] = RopeTable(inv_freq)
        rows = given() if callable(given) else given
        return CpuBatch(plan, shape, rope, self._new_program, rows, noise)

    def _new_program(self, num_tokens: int) -> Program:
        if num_tokens > MAX_TOKENS:
            return Program(self._workers, self._buffers)
        return KeptProgram(self._workers, self._kept_buffers)

    def run(self, body: Body, batch: CpuBatch, store: KVStore) -> F32:
        self._replays.head_start = 0.0
        if batch.size[0] > MAX_TOKENS:
            result = body(batch, store)
            batch.taps = batch.program.taps
            return result
        return self._replays.run(body, batch, store)

    def draw(
        self, body: Body, batch: CpuBatch, store: KVStore, draws: Sequence[CoupledDraws | None]
    ) -> Scores:
        """As in `Kernels`. Rows that need more than noise and masks are returned as logits: the
        host draws from them, and only along the accepted path."""
        if not batch.draw(draws):
            return Scores(self.run(body, batch, store))
        if batch.size[0] > MAX_TOKENS:
            logits, drawn = self.run(body, batch, store), batch.program.drawn
            assert drawn is not None
            return drawn.scores(logits)
        return self._replays.draw(body, batch, store)

    def embed(self, table: Matrix, batch: CpuBatch) -> Rows:
        (part,) = table.parts
        tokens, program = batch.tokens, batch.program
        batch.num_embeddings = part.num_out
        batch.check(tokens.tolist())
        x = Rows(program, len(tokens), table.num_in)
        program.hold(batch, table)
        expand = self._library.embed(part.weight_format)
        rows = (part.address, part.row_bytes, part.num_blocks)
        program.add(expand, len(tokens), tokens.ctypes.data, *rows, *x.place)
        return x

    def add_norm(self, x: Rows, delta: Rows | None, norm: Norm) -> tuple[Rows, Rows]:
        h = Rows(x.program, x.num_rows, x.width)
        x.program.hold(norm)
        if delta is not None and delta.program is not x.program:
            delta.program.run()
            x.program.hold(delta)
        added = 0 if delta is None else delta.address
        addresses = (x.address, added, h.address, norm.weight.address)
        operation, eps = self._operations.add_norm, float_bits(norm.eps)
        x.program.add(operation, x.num_rows, x.width, x.stride, *addresses, eps)
        x.program.last_made = h.address, "norm"
        x.digits = None
        return x, h

    def linear(self, x: Rows, matrix: Matrix) -> Rows:
        assert x.width == matrix.num_in, (x.width, matrix.num_in)
        program, y = x.program, Rows(x.program, x.num_rows, matrix.num_written)
        program.hold(matrix)
        first, last = 0, matrix.parts[-1]
        for part in matrix.parts:
            if part.weight_format in PACKED:
                source, (block, group, row) = self._digits.of(x)
            else:
                source, (block, group, row) = x, (x.stride, GROUP_ROWS * x.stride, x.stride)
            program.add(
                self._library.linear(part.weight_format),
                part.num_chunks,
                *part.sizes,
                x.num_rows,
                part.product_address,
                part.product_row_bytes,
                source.address,
                block,
                part.num_blocks,
                y.address + first,
                y.stride,
                0 if matrix.bias is None else matrix.bias.address + first,
                group,
                row,
                waits=part is last,
            )
            first += 4 * part.num_out
        return y if y.width == matrix.num_out else self._narrowed(y, matrix.num_out)

    def _narrowed(self, x: Rows, width: int) -> Rows:
        """Copy the first columns to rows whose padding is zero."""
        out = Rows(x.program, x.num_rows, width)
        all_rows = np.arange(x.num_rows)
        x.program.hold(all_rows)
        self._add_select(x, all_rows, out)
        return out

    def silu_mul(self, gate_up: Rows) -> Rows:
        program, width = gate_up.program, gate_up.width // 2
        out = Rows(program, gate_up.num_rows, width)
        operation, places = self._operations.silu_mul, (*gate_up.place, *out.place)
        program.add(operation, gate_up.num_rows, width, *places)
        program.last_made = out.address, "silu"
        return out

    def select(self, x: Rows, batch: CpuBatch) -> Rows:
        out = Rows(x.program, len(batch.wanted), x.width)
        x.program.hold(batch)
        self._add_select(x, batch.wanted, out)
        return out

    def _add_select(self, x: Rows, chosen: IntArray, out: Rows) -> None:
        assert x.stride == out.stride, (x.stride, out.stride)
        addresses = (x.address, chosen.ctypes.data, out.address)
        x.program.add(self._operations.select, out.num_rows, out.width, x.stride, *addresses)

    def given(self, batch: CpuBatch, idx: int) -> Rows:
        source, width = batch.given[idx], batch.given_widths[idx]
        x = Rows(batch.program, len(source), width)
        batch.program.hold(batch)
        self._place(x, 0, source.ctypes.data, 4 * source.shape[1], width)
        return x

    def concat(self, parts: Sequence[Rows]) -> Rows:
        x = Rows(parts[0].program, parts[0].num_rows, sum(part.width for part in parts))
        first = 0
        for part in parts:
            self._place(x, first, part.address, part.stride, part.width)
            first += part.width
        return x

    def _place(self, x: Rows, first: int, address: int, stride: int, width: int) -> None:
        """Copy the rows at `address` into the columns of x from `first` on."""
        target = x.address + 4 * first
        place = self._operations.place
        x.program.add(place, x.num_rows, width, address, stride, target, x.stride)

    def finish(self, x: Rows) -> F32:
        return x.program.finish(x)

    def tap(self, x: Rows, batch: CpuBatch) -> None:
        batch.program.tap(self.concat([x]))

    def taps(self, batch: CpuBatch) -> tuple[F32, ...]:
        return batch.taps

    def logits(self, x: Rows, head: Matrix) -> F32:
        y = self.linear(x, head)
        self._draw_rows(y)
        is_whole = head.num_written == head.num_out  # else `_narrowed` adds the last step
        return x.program.finish(y, len(head.parts) if is_whole else 0)

    def read(self, data: npt.NDArray[np.int64]) -> None:
        """Read memory with all threads, to measure its bandwidth in benchmarks."""
        chunk_len = 1 << 14
        num_chunks = len(data) // chunk_len
        sums = np.empty(num_chunks, np.int64)
        program = Program(self._workers, self._buffers)
        operation = self._library.operation("read")
        program.add(operation, num_chunks, chunk_len, data.ctypes.data, sums.ctypes.data)
        program.run()

    def kinds_of_pass(self, store: KVStore, num_tokens: int) -> list[Kind]:
        """Return the steps of the last pass over `num_tokens` tokens, by kind, for benchmarks."""
        recording, scratch_bytes = self._replays.kept(store, num_tokens)
        return kinds_of(recording.steps, self._library.name_of, self._workers, scratch_bytes)


def _host(instruction_set: str | None) -> Machine:
    machine = Machine.host(instruction_set)
    if machine.instructions.is_slow and not machine.is_forced:
        warnings.warn(
            "this processor has neither AVX2 nor SDOT; products take slower code, with the same "
            "answers.",
            RuntimeWarning,
            stacklevel=3,
        )
    return machine
