"""Time the CPU kernels' products of each weight format, for 1 … 16 rows.

Each matrix is larger than the processor's caches, like a model.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from forerun.bench.measure.rounds import rounds, timed
from forerun.bench.measure.timed_run import Clock
from forerun.kernels.cpu import CpuKernels
from forerun.models.weights.checkpoint import Tensor
from forerun.models.weights.formats import FORMATS as PACKINGS

FORMATS: Final = ("Q4_0", "Q4_1", "Q4_K", "Q5_K", "Q6_K", "Q8_0", "BF16", "F16", "F32")
ROWS: Final = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16)
MATRIX_BYTES: Final = 64 << 20
_NUM_IN: Final = 2048


def measure_kernels(
    kernels: CpuKernels,
    clock: Clock,
    formats: Sequence[str] = FORMATS,
    rows: Sequence[int] = ROWS,
    num_repeats: int = 5,
    matrix_bytes: int = MATRIX_BYTES,
    progress: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Return the times of all formats; `rows` must contain 1. ^C keeps the complete repeats."""
    assert 1 in rows, rows
    memory = np.ones(matrix_bytes // 8, np.int64)
    works = {("read", 0): partial(timed, partial(kernels.read, memory), clock)}
    sizes = {}
    for name in formats:
        progress(f"preparing {name}")
        data = _random_blocks(name, matrix_bytes)
        sizes[name] = data.nbytes
        tensor = Tensor("w", (len(data), _NUM_IN), name, data)
        matrix = kernels.load_matrix(_Only(tensor), ["w"])
        works |= {(name, num): partial(_product, kernels, matrix, num, clock) for num in rows}
    seconds = rounds(works, num_repeats, progress=progress)
    reads = seconds.pop(("read", 0))
    speed = matrix_bytes / statistics.median(reads)
    return {
        "is_complete": len(reads) == num_repeats,
        "num_threads": kernels.num_threads,
        "matrix_bytes": matrix_bytes,
        "read_bytes_per_second": speed,
        "read_seconds": reads,
        "products": [
            _as_dict(name, sizes[name], {num: seconds[name, num] for num in rows}, speed)
            for name in formats
        ],
    }


def _product(kernels: CpuKernels, matrix: Any, num_rows: int, clock: Clock) -> float:
    x = np.random.default_rng(num_rows).standard_normal((num_rows, _NUM_IN))
    y = kernels.linear(kernels.rows(x), matrix)
    return timed(y.program.run, clock)


def _as_dict(
    name: str, num_bytes: int, seconds: dict[int, list[float]], read_bytes_per_second: float
) -> dict[str, Any]:
    medians = {num_rows: statistics.median(times) for num_rows, times in seconds.items()}
    bytes_per_second = num_bytes / medians[1]
    return {
        "format": name,
        "bytes": num_bytes,
        "bytes_per_second": bytes_per_second,
        "share_of_bandwidth": bytes_per_second / read_bytes_per_second,
        "seconds": {str(num_rows): times for num_rows, times in seconds.items()},
        "ratios": {str(num): median / medians[1] for num, median in medians.items()},
    }


def _random_blocks(weight_format: str, num_bytes: int) -> npt.NDArray[np.uint8]:
    """Return bytes of 1 … 56: read as floats of any width, none is infinite and none is tiny."""
    rng = np.random.default_rng(len(weight_format))
    row_bytes = PACKINGS[weight_format].row_bytes(_NUM_IN)
    return rng.integers(1, 57, (num_bytes // row_bytes, row_bytes), dtype=np.uint8)


@dataclass(frozen=True)
class _Only:
    """A checkpoint with a single tensor."""

    only: Tensor

    def tensor(self, _name: str) -> Tensor:
        return self.only

    def float32(self, name: str) -> npt.NDArray[np.float32]:
        raise AssertionError(f"{name} is loaded as it is")
