"""Everything `forerun bench gpu` measures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from forerun.bench.gpu.answers import measure_answers
from forerun.bench.gpu.numerics import measure_numerics
from forerun.bench.gpu.oracle import ALPHA, measure_oracle
from forerun.bench.gpu.shapes import ShapeBench, measure_shape
from forerun.bench.gpu.starts import measure_starts
from forerun.bench.measure.startup import StartFailed

if TYPE_CHECKING:
    from forerun.engine import LLM
    from forerun.kernels.cuda import CudaKernels

_NUM_READS: Final = 7


def measure_gpu(
    kernels: CudaKernels,
    packed: CudaKernels | None,
    shapes: Sequence[str],
    load: Callable[[], LLM] | None,
    start: Sequence[str],
    progress: Callable[[str], None],
) -> dict[str, Any]:
    """Measure bandwidth, numerics, each shape, a real model if `load` is given, the time to first
    token of `forerun` with the arguments `start`, and single kernels, in this order.

    The 3b shape is also measured with the kernels `packed`, which hold weights as int8. ^C keeps
    what was measured, once the bandwidth is known: the rest is compared with it.
    """
    progress("reading memory")
    speed = median(kernels.read_speed() for _ in range(_NUM_READS))
    found: list[dict[str, Any]] = []
    benches: list[ShapeBench] = []  # one for each of `found`
    numerics, answers, oracle, starts, is_complete = None, None, None, None, False
    try:
        progress("comparing logits")
        numerics = measure_numerics(kernels)
        for name in shapes:
            progress(f"measuring the {name} shape")
            spoiled = 0.0 if name == "3b" else 1 - ALPHA  # the other shapes draft for it
            bench, measured = measure_shape(kernels, name, speed, spoiled)
            benches.append(bench)
            found.append(measured)
        if "3b" in shapes:
            progress("drafting with an oracle")
            models = {name: bench.model for name, bench in zip(shapes, benches, strict=True)}
            oracle = measure_oracle(models, "3b", "1b" if "1b" in models else None)
        if packed is not None and "3b" in shapes:
            progress("measuring int8 weights")
            bench, measured = measure_shape(packed, "3b", speed)
            benches.append(bench)
            found.append(measured | {"shape": "3b, int8"})
        if load is not None:
            answers = measure_answers(load, progress)
            progress("starting without compiled kernels")
            try:
                starts = measure_starts(start)
            except StartFailed as error:
                progress(f"no start was measured: {error}")
        progress("timing kernels")
        for bench, measured in zip(benches, found, strict=True):
            measured["kernels"] = bench.kernel_times()
        is_complete = load is None or starts is not None
    except KeyboardInterrupt:
        pass
    return {
        "read_bytes_per_second": speed,
        "gpu": kernels.device_name,
        "dtype": str(kernels.dtype).removeprefix("torch."),
        "numerics": numerics,
        "shapes": found,
        "answers": answers,
        "oracle": oracle,
        "starts": starts,
        "is_complete": is_complete,
    }
