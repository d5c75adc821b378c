"""Which kernel set runs a model."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Final

from forerun.engine.setup.device_choice import refusal, sees_gpu, wants_cuda
from forerun.engine_config import EngineConfig
from forerun.errors import CannotCompile, InvalidOption
from forerun.kernels import Kernels, ReferenceKernels
from forerun.models.download.store import default_cache_dir

if TYPE_CHECKING:
    from forerun.kernels.cpu import CpuKernels

_ROUNDING: Final = {"quantization", "activations", "kv_cache_dtype"}
_HIDDEN: Final = {  # options that imply the processor, though their names do not say so
    "instruction_set": "an instruction set (FORERUN_CPU) is",
    "kv_cache_dtype": "kv_cache_dtype is",
}


def choose_kernels(config: EngineConfig) -> Kernels:
    """Return the kernel set that `config` names, or the one that it is given.

    `auto` is `cuda` if torch sees a GPU, else `cpu`, or `reference` with a warning if Numba cannot
    compile.
    """
    name, options = config.kernels, config.cpu_options
    if not isinstance(name, str):
        if options or (config.device, config.dtype) != ("auto", "auto"):
            raise InvalidOption(
                "threads, quantization, activations and kv_cache_dtype are set in the kernel set "
                "that you give; drop them, and device and dtype."
            )
        return name
    if is_on_gpu(config):
        return _cuda_kernels(config)
    if name == "reference":
        if options:
            raise refusal(name, options)
        return ReferenceKernels()
    is_hidden = options and options.keys() <= _HIDDEN.keys()
    if is_hidden and name == config.device == "auto" and sees_gpu():
        named = " and ".join(_HIDDEN[option] for option in options)
        warnings.warn(
            f"{named} given, so the processor runs the model, not the GPU; drop what is meant for "
            "cpu, or say device 'cpu'.",
            RuntimeWarning,
            stacklevel=2,
        )
    try:
        return cpu_kernels(config)
    except CannotCompile as error:
        if name == "cpu" or options.keys() & _ROUNDING:
            raise
        warnings.warn(
            f"{error} The reference kernels take over: the same promises, many times slower.",
            RuntimeWarning,
            stacklevel=2,
        )
        return ReferenceKernels()


def is_on_gpu(config: EngineConfig) -> bool:
    """Whether the options mean the GPU. Quantization to int8 says nothing: both can do that."""
    if not isinstance(config.kernels, str):
        return config.kernels.name == "cuda"
    options = config.cpu_options.items()
    asked = {key: value for key, value in options if (key, value) != ("quantization", "int8")}
    return wants_cuda(config.device, config.dtype, config.kernels, asked)


def _cuda_kernels(config: EngineConfig) -> Kernels:
    from forerun.kernels.cuda import CudaKernels

    # Integers are converted to float16 in fewer instructions than to bfloat16.
    usual = "bfloat16" if config.quantization is None else "float16"
    dtype = usual if config.dtype == "auto" else config.dtype
    return CudaKernels(dtype, quantization=config.quantization, progress=config.progress)


def cpu_kernels(config: EngineConfig) -> CpuKernels:
    """Return the cpu kernels; raise `CannotCompile` if Numba is missing or broken, or rejects its
    own settings."""
    try:
        from forerun.kernels.cpu import CpuKernels
    except (ImportError, OSError, ValueError) as error:  # Numba, its library, its settings
        raise CannotCompile.because("be imported", error) from error
    folder = config.cache_folder or default_cache_dir()
    return CpuKernels(**config.cpu_options, cache_dir=folder, progress=config.progress)
