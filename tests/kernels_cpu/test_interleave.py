"""Weights of a mapped file, laid out for products a slice at a time."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np

from forerun.kernels.cpu.codegen.machine import X86
from forerun.kernels.cpu.weights.interleave import Tiles
from tests.kernels_cpu.packed import packed

NUM_OUT, NUM_IN = 9605, 1024  # 6 MB, and a last tile that is not full
SLICE = 4 << 20


class Watched(mmap.mmap):
    """Notes the lengths of the stretches that are given back to the system."""

    def madvise(self, _option: int, _first: int = 0, length: int = 0) -> None:
        self.given_back: list[int] = [*getattr(self, "given_back", ()), length]


def test_the_file_is_given_back_slice_by_slice(tmp_path: Path) -> None:
    weights = packed("Q4_1", NUM_OUT, NUM_IN)
    (tmp_path / "weights").write_bytes(weights.tobytes())
    with (tmp_path / "weights").open("rb") as file:
        mapped = Watched(file.fileno(), 0, access=mmap.ACCESS_READ)
    data = np.ndarray(weights.shape, np.uint8, mapped)
    tiles = Tiles(X86[0])
    found = tiles.interleaved(data, "Q4_1")
    assert max(mapped.given_back) <= SLICE
    assert sum(mapped.given_back) > 0.99 * weights.nbytes
    firsts = [*range(0, NUM_OUT - 16, 16), NUM_OUT - 16]  # the last tile has some rows again
    for tile, first in zip(found, firsts, strict=True):
        (alone,) = tiles.interleaved(weights[first : first + 16], "Q4_1")
        assert np.array_equal(tile, alone)
