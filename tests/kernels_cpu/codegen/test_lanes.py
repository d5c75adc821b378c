"""Vector IR: rows that are summed together have the bits of rows that are summed alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba import int64, njit, void

from forerun.kernels.cpu.codegen.emitted import emitted
from forerun.kernels.cpu.codegen.lanes import F32, Emitter, Value, vector
from forerun.kernels.cpu.codegen.machine import Machine
from tests.kernels.sources import normal


@pytest.mark.parametrize("num_lanes", [4, 8, 16])
@pytest.mark.parametrize("num_rows", [1, 3, 4, 12, 16])
def test_rows_folded_together_have_the_bits_of_each_alone(num_rows: int, num_lanes: int) -> None:
    num_rows = min(num_rows, num_lanes)

    @emitted(void, int64, int64, int64)
    def fold_both(b: Any, source: Value, together: Value, alone: Value) -> None:
        e, kind = Emitter(b, Machine(num_lanes, ())), vector(F32, num_lanes)
        rows = [e.load(e.offset(source, 4 * num_lanes * i), kind) for i in range(num_rows)]
        e.store(e.part(e.fold_each(rows), 0, num_rows), together)
        for i, row in enumerate(rows):
            e.store(e.fold(row), e.offset(alone, 4 * i))

    @njit
    def run(source, together, alone):  # type: ignore[no-untyped-def]
        fold_both(source, together, alone)

    for seed in range(20):
        x = normal(seed, num_rows, num_lanes)
        together, alone = np.empty((2, num_rows), np.float32)
        run(x.ctypes.data, together.ctypes.data, alone.ctypes.data)
        np.testing.assert_array_equal(together, alone)
        np.testing.assert_allclose(alone, x.sum(axis=1), rtol=0, atol=1e-5)
