"""Every kernel set that must keep the contract, and how a test's rows get in and out of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from forerun.kernels import Kernels, ReferenceKernels
from forerun.kernels.base import Array
from tests.kernels.sources import F32


@dataclass(frozen=True)
class KernelSet:
    kernels: Kernels
    put: Callable[[F32], Array]  # a copy that the kernels may write to
    get: Callable[[Array], F32]


KERNEL_SETS: dict[str, Callable[[], KernelSet]] = {
    "reference": lambda: KernelSet(ReferenceKernels(), put=np.copy, get=np.asarray),
}
