"""Kernels for NVIDIA GPUs, in torch and Triton, which the extra `[gpu]` installs."""

from forerun.kernels.cuda.kernels import DTYPES, CudaKernels

__all__ = ["DTYPES", "CudaKernels"]
