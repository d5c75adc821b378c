"""The steps with which one pass guesses a whole chain of tokens (`ChainKernels`)."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from forerun.kernels.cpu.draws.pick import gated_row, pick
from forerun.kernels.cpu.library import Library
from forerun.kernels.cpu.runtime.batch import CpuBatch
from forerun.kernels.cpu.runtime.program import Rows
from forerun.types import FloatArray, IntArray

F32 = npt.NDArray[np.float32]

_CHAIN_OPERATIONS: Final = {"pick": pick, "gated_row": gated_row}


class ChainSteps:
    _library: Library

    def load_array(self, array: IntArray | FloatArray) -> npt.NDArray[Any]:
        for name, source in _CHAIN_OPERATIONS.items():
            self._library.operation(name, source)  # compile now, while the model is loaded
        kind = np.int64 if np.issubdtype(array.dtype, np.integer) else np.float32
        return np.ascontiguousarray(array, kind)

    def computed(self, x: Rows) -> Rows:
        return x

    def num_known(self, batch: CpuBatch) -> int:
        return len(batch.tokens) - len(batch.wanted) + 1

    def part(self, batch: CpuBatch, first: int, last: int) -> CpuBatch:
        return batch.part(first, last)

    def new_picks(self, batch: CpuBatch, num: int) -> Rows:
        return Rows(batch.program, num, 3)

    def pick(
        self,
        logits: Rows,
        ids: IntArray,
        batch: CpuBatch,
        picks: Rows,
        place: int,
        *,
        row: int = 0,
        delta: Rows | None = None,
        token: int | None = None,
    ) -> None:
        program = logits.program
        program.hold(ids, batch)
        scores = (logits.address + row * logits.stride, 0 if delta is None else delta.address)
        noise = (batch.noise.ctypes.data, place)
        out = 0 if token is None else batch.tokens[token:].ctypes.data
        picked = picks.address + place * picks.stride
        operation = self._library.operation("pick", pick)
        program.add(operation, 1, *scores, ids.ctypes.data, len(ids), *noise, out, picked)

    def gated_row(self, table: F32, gates: Rows, row: int, picks: Rows, place: int) -> Rows:
        program, step = gates.program, Rows(gates.program, 1, gates.width)
        program.hold(table)
        gate, picked = gates.address + row * gates.stride, picks.address + place * picks.stride
        operation = self._library.operation("gated_row", gated_row)
        program.add(operation, 1, table.ctypes.data, gate, picked, gates.width, step.address)
        return step
