"""The CPU kernel set, compiled by Numba: the same bits for one token or many."""

from forerun.kernels.cpu.kernels import CpuKernels

__all__ = ["CpuKernels"]
