"""Which kernel set runs a model."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from forerun.engine.setup.device_choice import wants_cuda
from forerun.errors import CannotCompile, InvalidOption, unknown_name
from forerun.kernels import Kernels, ReferenceKernels
from forerun.models.download.store import default_cache_dir

KERNEL_SETS: Final = ("auto", "cpu", "cuda", "reference")

Progress = Callable[[str, int, int], None]  # what, how many of how many; 0 of 0: nobody knows


@dataclass(frozen=True)
class CpuOptions:
    """What the cpu kernels take; None is their own choice. `quantization` "int8" is for GPUs too,
    where these are asked for by name."""

    num_threads: int | None = None
    quantization: str | None = None
    activations: str | None = None
    instruction_set: str | None = None

    @property
    def changes_numbers(self) -> bool:
        return self.quantization is not None or self.activations is not None


def choose_kernels(
    name: str | Kernels,
    options: CpuOptions,
    cache_dir: Path | None,
    progress: Progress | None,
    device: str = "auto",
    dtype: str = "auto",
) -> Kernels:
    """A kernel set is itself. `auto` is `cuda` where torch sees a GPU, else `cpu`, or `reference`
    where Numba cannot compile; then it warns of what is lost."""
    if not isinstance(name, str):
        if options != CpuOptions() or (device, dtype) != ("auto", "auto"):
            raise InvalidOption(
                "threads, quantization and activations are set in the kernel set that you give; "
                "drop them, and device and dtype."
            )
        return name
    if name not in KERNEL_SETS:
        raise unknown_name("kernel set", name, KERNEL_SETS)
    on_gpu = "cuda" in (device, name) and options.quantization == "int8"
    others = replace(options, quantization=None) if on_gpu else options
    if wants_cuda(device, dtype, name, has_cpu_options=others != CpuOptions()):
        return _cuda_kernels(dtype, options.quantization, progress)
    if name == "reference":
        if options != CpuOptions():
            raise InvalidOption(
                "threads, quantization and activations are for the cpu kernels; drop them."
            )
        return ReferenceKernels()
    try:
        return _cpu_kernels(options, cache_dir or default_cache_dir(), progress)
    except CannotCompile as error:
        if name == "cpu" or options.changes_numbers:
            raise
        warnings.warn(
            f"{error} The reference kernels take over: the same promises, many times slower.",
            RuntimeWarning,
            stacklevel=2,
        )
        return ReferenceKernels()


def _cuda_kernels(dtype: str, quantization: str | None, progress: Progress | None) -> Kernels:
    from forerun.kernels.cuda import CudaKernels

    dtype = "bfloat16" if dtype == "auto" else dtype
    return CudaKernels(dtype, quantization=quantization, progress=progress)


def _cpu_kernels(options: CpuOptions, cache_dir: Path, progress: Progress | None) -> Kernels:
    try:
        from forerun.kernels.cpu import CpuKernels
    except (ImportError, OSError) as error:  # Numba, or the library that it loads
        raise CannotCompile.because("be imported", error) from error
    return CpuKernels(**asdict(options), cache_dir=cache_dir, progress=progress)
