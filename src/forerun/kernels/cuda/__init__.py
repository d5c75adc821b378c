"""Kernels for NVIDIA GPUs. The only room that imports torch and Triton: the extra `[gpu]`."""

from forerun.kernels.cuda.kernels import DTYPES, CudaKernels

__all__ = ["DTYPES", "CudaKernels"]
