"""Which kernel set runs a model."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Final

from forerun.errors import CannotCompile, InvalidOption, unknown_name
from forerun.kernels import Kernels, ReferenceKernels
from forerun.models.store import default_cache_dir

KERNEL_SETS: Final = ("auto", "cpu", "reference")

Progress = Callable[[str, int, int], None]  # what, how many of how many; 0 of 0: nobody knows


def choose_kernels(
    name: str,
    num_threads: int | None,
    quantization: str | None,
    cache_dir: Path | None,
    progress: Progress | None,
) -> Kernels:
    """`auto` is `cpu`, or `reference` where Numba cannot compile; then it warns of what is lost."""
    if name not in KERNEL_SETS:
        raise unknown_name("kernel set", name, KERNEL_SETS)
    if name == "reference":
        if num_threads is not None or quantization is not None:
            raise InvalidOption("threads and quantization are for the cpu kernels; drop them.")
        return ReferenceKernels()
    try:
        return _cpu_kernels(num_threads, quantization, cache_dir or default_cache_dir(), progress)
    except CannotCompile as error:
        if name == "cpu" or quantization is not None:
            raise
        warnings.warn(
            f"{error} The reference kernels take over: the same promises, many times slower.",
            RuntimeWarning,
            stacklevel=2,
        )
        return ReferenceKernels()


def _cpu_kernels(
    num_threads: int | None,
    quantization: str | None,
    cache_dir: Path,
    progress: Progress | None,
) -> Kernels:
    try:
        from forerun.kernels.cpu import CpuKernels
    except (ImportError, OSError) as error:  # Numba, or the library that it loads
        raise CannotCompile.because("be imported", error) from error
    return CpuKernels(
        num_threads, quantization=quantization, cache_dir=cache_dir, progress=progress
    )
