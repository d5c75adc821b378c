"""Every kernel set that must keep the contract, and how a test's rows get in and out of it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from forerun.kernels import Kernels, ReferenceKernels
from forerun.kernels.base import Array
from forerun.kernels.cpu import CpuKernels
from forerun.kernels.cpu.runtime.workers import num_usable_cores
from tests.kernels.sources import F32

# Compiled code is kept between test runs; its folder is named by the sources it came from.
CACHE_DIR = Path(tempfile.gettempdir()) / "forerun-tests"


@dataclass(frozen=True)
class KernelSet:
    kernels: Kernels
    put: Callable[[F32], Array]  # a copy that the kernels may write to
    get: Callable[[Array], F32]


def cpu(num_threads: int, activations: str | None = None) -> KernelSet:
    if num_threads > num_usable_cores():
        pytest.skip(f"needs {num_threads} cores")
    kernels = CpuKernels(num_threads, activations=activations, cache_dir=CACHE_DIR)
    return KernelSet(kernels, put=kernels.rows, get=np.asarray)


KERNEL_SETS: dict[str, Callable[[], KernelSet]] = {
    "reference": lambda: KernelSet(ReferenceKernels(), put=np.copy, get=np.asarray),
    "cpu-1": lambda: cpu(1),
    "cpu-2": lambda: cpu(2),
}
INT8 = "cpu-2-int8"  # activations of 8 bits, which only packed weights meet
FOR_PACKED = KERNEL_SETS | {INT8: lambda: cpu(2, "int8")}
