"""How fast the CPU kernels are: products of each weight format, for 1 … 16 rows at once.

A matrix is larger than the processor's caches, as a model is. Formats and row counts take turns,
so that a busy moment of the machine does not fall on one of them alone.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from forerun.bench.measure.timed_run import Clock
from forerun.kernels.cpu import CpuKernels
from forerun.models.weights.checkpoint import Tensor
from forerun.models.weights.formats import FORMATS as PACKINGS

FORMATS: Final = ("Q4_0", "Q4_1", "Q4_K", "Q5_K", "Q6_K", "Q8_0", "BF16", "F16", "F32")
ROWS: Final = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16)
MATRIX_BYTES: Final = 64 << 20
_NUM_IN: Final = 2048


@dataclass
class _Case:
    """A matrix under test, and its seconds by number of rows."""

    weight_format: str
    matrix: Any
    num_bytes: int
    seconds: dict[int, list[float]] = field(default_factory=dict)

    def as_dict(self, read_bytes_per_second: float) -> dict[str, Any]:
        """Without the first repeat, which warmed up."""
        counted = {num_rows: times[1:] for num_rows, times in self.seconds.items()}
        medians = {num_rows: statistics.median(times) for num_rows, times in counted.items()}
        bytes_per_second = self.num_bytes / medians[1]
        return {
            "format": self.weight_format,
            "bytes": self.num_bytes,
            "bytes_per_second": bytes_per_second,
            "share_of_bandwidth": bytes_per_second / read_bytes_per_second,
            "seconds": {str(num_rows): times for num_rows, times in counted.items()},
            "ratios": {str(num): median / medians[1] for num, median in medians.items()},
        }


def measure_kernels(
    kernels: CpuKernels,
    clock: Clock,
    formats: Sequence[str] = FORMATS,
    rows: Sequence[int] = ROWS,
    num_repeats: int = 5,
    matrix_bytes: int = MATRIX_BYTES,
    progress: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """`rows` must hold 1. The first repeat warms up and is not counted.

    After ^C, the whole repeats that there are, if one of them counts.
    """
    assert 1 in rows, rows
    cases = []
    for name in formats:
        progress(f"preparing {name}")
        cases.append(_case(kernels, name, matrix_bytes))
    memory = np.ones(matrix_bytes // 8, np.int64)
    reads: list[float] = []
    try:
        for repeat in range(num_repeats + 1):
            progress(f"measuring, round {repeat} of {num_repeats}")
            read = _seconds(lambda: kernels.read(memory), clock)
            found = list(_round(kernels, cases, rows, clock))
            reads.append(read)
            for case, num_rows, seconds in found:
                case.seconds.setdefault(num_rows, []).append(seconds)
    except KeyboardInterrupt:
        if len(reads) < 2:
            raise
    counted = reads[1:]
    read_bytes_per_second = matrix_bytes / statistics.median(counted)
    return {
        "is_complete": len(counted) == num_repeats,
        "num_threads": kernels.num_threads,
        "matrix_bytes": matrix_bytes,
        "read_bytes_per_second": read_bytes_per_second,
        "read_seconds": counted,
        "products": [case.as_dict(read_bytes_per_second) for case in cases],
    }


def _round(
    kernels: CpuKernels, cases: Sequence[_Case], rows: Sequence[int], clock: Clock
) -> Iterator[tuple[_Case, int, float]]:
    for num_rows in rows:
        x = np.random.default_rng(num_rows).standard_normal((num_rows, _NUM_IN))
        for case in cases:
            y = kernels.linear(kernels.rows(x), case.matrix)
            yield case, num_rows, _seconds(y.program.run, clock)


def _seconds(work: Callable[[], None], clock: Clock) -> float:
    began = clock()
    work()
    return clock() - began


def _case(kernels: CpuKernels, weight_format: str, matrix_bytes: int) -> _Case:
    packing = PACKINGS[weight_format]
    row_bytes = packing.row_bytes(_NUM_IN)
    data = _random_blocks(weight_format, matrix_bytes // row_bytes, row_bytes)
    tensor = Tensor("w", (len(data), _NUM_IN), weight_format, data)
    return _Case(weight_format, kernels.load_matrix(_Only(tensor), ["w"]), data.nbytes)


def _random_blocks(weight_format: str, num_rows: int, row_bytes: int) -> npt.NDArray[np.uint8]:
    """Bytes of 1 … 56: no float among them, of any width, is infinite, and none is tiny."""
    rng = np.random.default_rng(len(weight_format))
    return rng.integers(1, 57, (num_rows, row_bytes), dtype=np.uint8)


@dataclass(frozen=True)
class _Only:
    """A source of one tensor."""

    only: Tensor

    def tensor(self, _name: str) -> Tensor:
        return self.only

    def float32(self, name: str) -> npt.NDArray[np.float32]:
        raise AssertionError(f"{name} is loaded as it is")
