"""Which kernel set runs a model."""

from __future__ import annotations

import warnings
from typing import Final

from forerun.engine.setup.device_choice import wants_cuda
from forerun.engine_config import EngineConfig, Progress
from forerun.errors import CannotCompile, InvalidOption
from forerun.kernels import Kernels, ReferenceKernels
from forerun.models.download.store import default_cache_dir
from forerun.option_checks import require_known

KERNEL_SETS: Final = ("auto", "cpu", "cuda", "reference")


def choose_kernels(config: EngineConfig) -> Kernels:
    """A kernel set is itself. `auto` is `cuda` where torch sees a GPU, else `cpu`, or `reference`
    where Numba cannot compile; then it warns of what is lost."""
    name, options = config.kernels, config.cpu_options
    if not isinstance(name, str):
        if options or (config.device, config.dtype) != ("auto", "auto"):
            raise InvalidOption(
                "threads, quantization and activations are set in the kernel set that you give; "
                "drop them, and device and dtype."
            )
        return name
    require_known("kernel set", KERNEL_SETS, name)
    if wants_cuda(config.device, config.dtype, name, has_cpu_options=bool(options)):
        return _cuda_kernels(config.dtype, config.progress)
    if name == "reference":
        if options:
            raise InvalidOption(
                "threads, quantization and activations are for the cpu kernels; drop them."
            )
        return ReferenceKernels()
    try:
        return _cpu_kernels(config)
    except CannotCompile as error:
        if name == "cpu" or config.quantization is not None or config.activations is not None:
            raise
        warnings.warn(
            f"{error} The reference kernels take over: the same promises, many times slower.",
            RuntimeWarning,
            stacklevel=2,
        )
        return ReferenceKernels()


def _cuda_kernels(dtype: str, progress: Progress | None) -> Kernels:
    from forerun.kernels.cuda import CudaKernels

    return CudaKernels("bfloat16" if dtype == "auto" else dtype, progress=progress)


def _cpu_kernels(config: EngineConfig) -> Kernels:
    try:
        from forerun.kernels.cpu import CpuKernels
    except (ImportError, OSError) as error:  # Numba, or the library that it loads
        raise CannotCompile.because("be imported", error) from error
    folder = config.cache_dir or default_cache_dir()
    return CpuKernels(**config.cpu_options, cache_dir=folder, progress=config.progress)
