"""`forerun bench kernels`: the cost of matrix products, by weight format and rows."""

from __future__ import annotations

import time
from dataclasses import replace

from forerun.cli.bench.options import OutputOptions, output_options
from forerun.cli.bench.outcome import finish
from forerun.cli.bench.record_head import record_head
from forerun.cli.options.engine import kernel_settings, measuring_options
from forerun.cli.options.shared import only, takes
from forerun.cli.terminal.screen import screen
from forerun.engine_config import EngineConfig


@takes(
    engine=only(measuring_options, "num_threads", "activations"),
    output=only(output_options, "json", "plot"),
)
def kernels(engine: EngineConfig, output: OutputOptions) -> None:
    """Time matrix products of every weight format for 1 to 16 rows, and memory bandwidth."""
    from forerun.bench.views.reports import save_kernel_plot
    from forerun.engine.setup.kernel_choice import cpu_kernels

    with screen().status("preparing …") as status:

        def say(what: str, *_count: object) -> None:
            status.update(f"{what} …")

        products = cpu_kernels(replace(engine, progress=say))
        from forerun.bench.measure.kernels import measure_kernels  # Numba can be imported

        found = measure_kernels(products, time.perf_counter, progress=say)
    head = record_head(None, kernel_settings(engine))
    report = {**head, "measured": "kernels", **found}
    if output.plot is not None:
        save_kernel_plot(report, output.plot)
    finish(report, output.json)
