"""Memory alignment, slices and dtype of the reference set; `tests/contracts` has the rest."""

from __future__ import annotations

import numpy as np
import pytest

from forerun.kernels import ReferenceKernels
from forerun.kernels.reference import ALIGNMENT, SLICE_BYTES, aligned_empty
from tests.kernels.sources import ArraySource, normal


@pytest.mark.parametrize("size", [1, 3, 576, 100_000])
def test_buffers_are_aligned(size: int) -> None:
    for _ in range(5):
        assert aligned_empty((size,), np.float32).ctypes.data % ALIGNMENT == 0


@pytest.mark.parametrize(("num_out", "num_in"), [(1, 1), (1000, 576), (5000, 576), (3, 1 << 19)])
def test_slices_cover_every_output_once_within_their_size(num_out: int, num_in: int) -> None:
    weight = np.zeros((num_out, num_in), np.float32)
    matrix = ReferenceKernels().load_matrix(ArraySource({"w": weight}), ["w"])
    outputs = [n for part in matrix.slices for n in range(num_out)[part]]
    assert outputs == list(range(num_out))
    for part in matrix.slices:
        rows = part.stop - part.start
        assert rows == 1 or rows * num_in * 4 <= SLICE_BYTES


@pytest.mark.parametrize("num_in", [5, 48, 576])
def test_a_row_may_lie_at_any_address(num_in: int) -> None:
    kernels = ReferenceKernels()
    matrix = kernels.load_matrix(ArraySource({"w": normal(1, 97, num_in)}), ["w"])
    x = normal(2, 3, num_in)
    expected = kernels.linear(x, matrix)
    for offset in range(16):
        moved = np.empty(x.size + 16, np.float32)[offset : offset + x.size].reshape(x.shape)
        moved[:] = x
        np.testing.assert_array_equal(kernels.linear(moved, matrix), expected)


def test_the_oracle_computes_in_float64() -> None:
    kernels = ReferenceKernels(np.float64)
    matrix = kernels.load_matrix(ArraySource({"w": normal(1, 9, 400)}), ["w"])
    x = normal(2, 1, 400).astype(np.float64)
    got = kernels.linear(x, matrix)
    assert got.dtype == np.float64
    np.testing.assert_allclose(got, x @ normal(1, 9, 400).T.astype(np.float64), rtol=1e-13)
