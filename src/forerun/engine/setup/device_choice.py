"""Whether a GPU runs the model. Torch is imported only if there is an NVIDIA driver."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from forerun.errors import InvalidOption, MissingExtra, NoDevice

_DRIVERS: Final = (Path("/proc/driver/nvidia/version"), Path("/dev/nvidiactl"), Path("/dev/dxg"))


_WORDS: Final = {"num_threads": "threads", "instruction_set": "instruction set (FORERUN_CPU)"}


def refusal(kernels: str, options: Mapping[str, Any]) -> InvalidOption:
    """Return the error for options that the cpu kernels take and these `kernels` do not."""
    named = ", ".join(f"{_WORDS.get(name, name)} {value}" for name, value in options.items())
    return InvalidOption(f"the {kernels} kernels do not take {named}; drop what is meant for cpu.")


def wants_cuda(device: str, dtype: str, kernels: str, cpu_options: Mapping[str, Any]) -> bool:
    """Whether these options mean the GPU. `auto` does if torch sees one and there are no
    `cpu_options`."""
    if kernels == "cuda" and device == "auto":
        device = "cuda"
    if device == "cuda":
        if kernels not in ("auto", "cuda"):
            raise InvalidOption(f"kernels {kernels!r} run on the processor; drop device 'cuda'.")
        if cpu_options:
            raise refusal("cuda", cpu_options)
        _check_torch()
        return True
    if kernels == "cuda":
        raise InvalidOption("kernels 'cuda' need device 'cuda'; drop device 'cpu'.")
    if device == "auto" and kernels == "auto" and not cpu_options and sees_gpu():
        return True
    if dtype != "auto":
        raise InvalidOption(
            f"dtype {dtype!r} is for device 'cuda'; the processor takes weights as the file has "
            "them, or packed by quantization."
        )
    return False


def sees_gpu() -> bool:
    """Whether there are a driver, torch and Triton, and torch finds a device."""
    if find_spec("torch") is None or find_spec("triton") is None or not has_driver():
        return False
    torch: Any = import_module("torch")
    return bool(torch.cuda.is_available())


def has_driver() -> bool:
    return any(path.exists() for path in _DRIVERS)


def _check_torch() -> None:
    if find_spec("torch") is None or find_spec("triton") is None:
        raise MissingExtra("device 'cuda'", "gpu")
    if not sees_gpu():
        raise NoDevice("torch sees no CUDA device; look at `forerun doctor`, or use device 'cpu'.")
