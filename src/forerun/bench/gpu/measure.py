"""Everything `forerun bench gpu` measures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from forerun.bench.gpu.answers import measure_answers
from forerun.bench.gpu.oracle import measure_oracle
from forerun.bench.gpu.requirements import requirements
from forerun.bench.gpu.shapes import measure_shape

if TYPE_CHECKING:
    from forerun.engine import LLM
    from forerun.kernels.cuda import CudaKernels

_NUM_READS: Final = 7
_PACKED_SHARE: Final = (1 + 4 / 128) / 2  # a byte each, and a float32 for 128 of them


def measure_gpu(
    kernels: CudaKernels,
    packed_kernels: CudaKernels,
    shapes: Sequence[str],
    load: Callable[[], LLM] | None,
    progress: Callable[[str], None],
) -> dict[str, Any]:
    """Bandwidth first, then each shape, then a real model where there is one.

    After ^C, what there is; without the bandwidth there is nothing to hold it against.
    """
    progress("reading memory")
    speed = median(kernels.read_speed() for _ in range(_NUM_READS))
    found: list[dict[str, Any]] = []
    answers, oracle, packed, is_complete = None, None, None, False
    try:
        for name in shapes:
            progress(f"measuring the {name} shape")
            found.append(measure_shape(kernels, name, speed))
        if "3b" in shapes:
            progress("measuring int8 weights")
            packed = measure_shape(packed_kernels, "3b", speed, _PACKED_SHARE)
            progress("drafting with an oracle")
            oracle = measure_oracle(kernels, "3b", "1b" if "1b" in shapes else None)
        if load is not None:
            answers = measure_answers(load, progress)
        is_complete = True
    except KeyboardInterrupt:
        pass
    return {
        "read_bytes_per_second": speed,
        "gpu": kernels.device_name,
        "dtype": str(kernels.dtype).removeprefix("torch."),
        "shapes": found,
        "answers": answers,
        "int8": packed,
        "oracle": oracle,
        "requirements": requirements(found, answers, oracle, packed),
        "is_complete": is_complete,
    }
