"""How fast the CPU kernels are: products of each weight format, for 1 … 16 rows at once.

A matrix is larger than the processor's caches, as a model is. Formats and row counts take turns,
so that a busy moment of the machine does not fall on one of them alone.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from forerun.kernels.cpu import CpuKernels
from forerun.models.weights.checkpoint import Tensor
from forerun.models.weights.formats import FORMATS as PACKINGS

FORMATS: Final = ("Q4_0", "Q4_1", "Q4_K", "Q5_K", "Q6_K", "Q8_0", "BF16", "F16", "F32")
ROWS: Final = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16)
MATRIX_BYTES: Final = 64 << 20
_NUM_IN: Final = 2048


@dataclass(frozen=True)
class Product:
    """One format's seconds by number of rows."""

    weight_format: str
    num_bytes: int
    seconds: Mapping[int, Sequence[float]]

    def median(self, num_rows: int) -> float:
        return statistics.median(self.seconds[num_rows])

    def ratio(self, num_rows: int) -> float:
        """The cost of `num_rows` rows ÷ that of one."""
        return self.median(num_rows) / self.median(1)

    @property
    def bytes_per_second(self) -> float:
        """Of weights, for one row."""
        return self.num_bytes / self.median(1)


@dataclass(frozen=True)
class KernelReport:
    num_threads: int
    read_seconds: Sequence[float]  # for MATRIX_BYTES
    products: Sequence[Product]
    is_complete: bool = True  # False after ^C

    @property
    def read_bytes_per_second(self) -> float:
        return MATRIX_BYTES / statistics.median(self.read_seconds)

    def share_of_bandwidth(self, product: Product) -> float:
        return product.bytes_per_second / self.read_bytes_per_second

    def as_dict(self) -> dict[str, Any]:
        """For a JSON record."""
        return {
            "is_complete": self.is_complete,
            "num_threads": self.num_threads,
            "matrix_bytes": MATRIX_BYTES,
            "read_bytes_per_second": self.read_bytes_per_second,
            "read_seconds": list(self.read_seconds),
            "products": [self._product_as_dict(product) for product in self.products],
        }

    def _product_as_dict(self, product: Product) -> dict[str, Any]:
        return {
            "format": product.weight_format,
            "bytes": product.num_bytes,
            "bytes_per_second": product.bytes_per_second,
            "share_of_bandwidth": self.share_of_bandwidth(product),
            "seconds": {str(rows): list(times) for rows, times in product.seconds.items()},
            "ratios": {str(rows): product.ratio(rows) for rows in product.seconds},
        }


@dataclass
class _Case:
    """A matrix under test, and what was measured of it."""

    weight_format: str
    matrix: Any
    num_bytes: int
    seconds: dict[int, list[float]] = field(default_factory=dict)


def measure_kernels(
    kernels: CpuKernels,
    formats: Sequence[str] = FORMATS,
    rows: Sequence[int] = ROWS,
    num_repeats: int = 5,
    progress: Callable[[str], None] = lambda _: None,
) -> KernelReport:
    """`rows` must hold 1. The first repeat warms up and is not counted.

    After ^C, the whole repeats that there are, if one of them counts.
    """
    assert 1 in rows, rows
    cases = []
    for name in formats:
        progress(f"preparing {name}")
        cases.append(_case(kernels, name))
    memory = np.ones(MATRIX_BYTES // 8, np.int64)
    reads: list[float] = []
    try:
        for repeat in range(num_repeats + 1):
            progress(f"measuring, round {repeat} of {num_repeats}")
            read = _seconds(lambda: kernels.read(memory))
            found = list(_round(kernels, cases, rows))
            reads.append(read)
            for case, num_rows, seconds in found:
                case.seconds.setdefault(num_rows, []).append(seconds)
    except KeyboardInterrupt:
        if len(reads) < 2:
            raise
    products = [_product(case) for case in cases]
    is_complete = len(reads) == num_repeats + 1
    return KernelReport(kernels.num_threads, reads[1:], products, is_complete)


def _product(case: _Case) -> Product:
    counted = {num_rows: times[1:] for num_rows, times in case.seconds.items()}
    return Product(case.weight_format, case.num_bytes, counted)


def _round(
    kernels: CpuKernels, cases: Sequence[_Case], rows: Sequence[int]
) -> Iterator[tuple[_Case, int, float]]:
    for num_rows in rows:
        x = np.random.default_rng(num_rows).standard_normal((num_rows, _NUM_IN))
        for case in cases:
            y = kernels.linear(kernels.rows(x), case.matrix)
            yield case, num_rows, _seconds(y.program.run)


def _seconds(work: Callable[[], None]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _case(kernels: CpuKernels, weight_format: str) -> _Case:
    packing = PACKINGS[weight_format]
    row_bytes = packing.row_bytes(_NUM_IN)
    data = _random_blocks(weight_format, MATRIX_BYTES // row_bytes, row_bytes)
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
