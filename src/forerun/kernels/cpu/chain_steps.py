"""The steps with which one pass guesses a whole chain of tokens by itself (`ChainKernels`)."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from forerun.kernels.base import MarkovStep
from forerun.kernels.cpu.draws.pick import pick
from forerun.kernels.cpu.draws.shortlist import WIDTH, shortlist, walk
from forerun.kernels.cpu.library import Library
from forerun.kernels.cpu.runtime.batch import CpuBatch
from forerun.kernels.cpu.runtime.program import Rows
from forerun.types import FloatArray, IntArray

F32 = npt.NDArray[np.float32]

_CHAIN_OPERATIONS: Final = {"pick": pick, "shortlist": shortlist, "walk": walk}


class ChainSteps:
    _library: Library

    def load_array(self, array: IntArray | FloatArray) -> npt.NDArray[Any]:
        for name, source in _CHAIN_OPERATIONS.items():
            self._library.operation(name, source)  # compile now, while someone watches
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
        token: int | None = None,
    ) -> None:
        program = logits.program
        program.hold(ids, batch)
        noise = (batch.noise.ctypes.data, place)
        out = 0 if token is None else batch.tokens[token:].ctypes.data
        picked = picks.address + place * picks.stride
        operation = self._library.operation("pick", pick)
        program.add(operation, 1, logits.address, ids.ctypes.data, len(ids), *noise, out, picked)

    def pick_block(
        self, logits: Rows, gates: Rows, markov: MarkovStep, batch: CpuBatch, picks: Rows
    ) -> None:
        program, num, rank = logits.program, logits.num_rows, gates.width
        out = np.ascontiguousarray(markov.out, np.float32)
        found, added = Rows(program, num, WIDTH), Rows(program, 1, rank)
        program.hold(markov, out, batch)
        tokens = (markov.ids.ctypes.data, batch.noise.ctypes.data)
        operation = self._library.operation("shortlist", shortlist)
        program.add(operation, num, *logits.place, logits.width, *tokens, *found.place)
        tables = (markov.table.ctypes.data, out.ctypes.data, rank, added.address)
        operation = self._library.operation("walk", walk)
        program.add(operation, 1, *found.place, num, *tokens, *gates.place, *tables, *picks.place)
