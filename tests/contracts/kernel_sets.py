"""Every kernel set that must keep the contract, and how tests get rows in and out of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from forerun.engine.setup.device_choice import sees_gpu
from forerun.kernels import Kernels, ReferenceKernels
from forerun.kernels.base import Array
from forerun.kernels.cpu import CpuKernels
from forerun.models.download.store import default_cache_dir
from forerun.usable_cores import num_usable_cores
from tests.kernels.sources import F32

# Compiled code is kept between test runs, and shared with engines that are given no folder.
CACHE_DIR = default_cache_dir()


@dataclass(frozen=True)
class KernelSet:
    kernels: Kernels
    put: Callable[[F32], Array]  # a copy that the kernels may write to
    get: Callable[[Array], F32]
    rounding: float = 0.0  # of operands, relative, where they are shorter than float32
    row_rounding: float = 0.0  # of stored keys and values


def cpu(
    num_threads: int, activations: str | None = None, kv_cache_dtype: str = "auto"
) -> KernelSet:
    if num_threads > num_usable_cores():
        pytest.skip(f"needs {num_threads} cores")
    kernels = CpuKernels(
        num_threads, activations=activations, kv_cache_dtype=kv_cache_dtype, cache_dir=CACHE_DIR
    )
    rounding = 2.0**-11 if kv_cache_dtype == "float16" else 0.0
    return KernelSet(kernels, put=kernels.rows, get=np.asarray, row_rounding=rounding)


def cuda(dtype: str, *, graphs: bool = True, quantization: str | None = None) -> KernelSet:
    from forerun.kernels.cuda import CudaKernels

    kernels = CudaKernels(dtype, graphs=graphs, quantization=quantization)
    rounding = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 0.0}[dtype]
    return KernelSet(kernels, kernels.rows, kernels.to_host, rounding, row_rounding=rounding)


# Where there is no GPU, `tests/gpu/test_interpreter.py` tests their logic.
CUDA_SETS: dict[str, Callable[[], KernelSet]] = {
    "cuda-bfloat16": lambda: cuda("bfloat16"),
    "cuda-bfloat16-eager": lambda: cuda("bfloat16", graphs=False),
    "cuda-float16": lambda: cuda("float16"),
    "cuda-float32": lambda: cuda("float32"),
}


# These round what a contract test gives them, so only their bits in batches are compared.
CUDA_PACKED: dict[str, Callable[[], KernelSet]] = {
    "cuda-int8": lambda: cuda("bfloat16", quantization="int8"),
    "cuda-float16-int8": lambda: cuda("float16", quantization="int8"),
}

KERNEL_SETS: dict[str, Callable[[], KernelSet]] = {
    "reference": lambda: KernelSet(ReferenceKernels(), put=np.copy, get=np.asarray),
    "cpu-1": lambda: cpu(1),
    "cpu-2": lambda: cpu(2),
    "cpu-2-float16": lambda: cpu(2, kv_cache_dtype="float16"),
    **(CUDA_SETS if sees_gpu() else {}),
}
INT16 = "cpu-2-int16"  # 16-bit activations, which only products with packed weights have
FOR_PACKED = KERNEL_SETS | {INT16: lambda: cpu(2, "int16")}
