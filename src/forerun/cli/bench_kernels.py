"""`forerun bench kernels` and `forerun bench passes`: what products and whole passes cost here."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import typer

from forerun.cli.cache_dir import cache_dir
from forerun.cli.circumstances import circumstances, model_facts
from forerun.cli.engine_options import EngineOptions
from forerun.cli.group import INTERRUPTED
from forerun.cli.screen import screen


def bench_kernels(engine: EngineOptions, record: Path | None, plot: Path | None) -> None:
    """Measure, show a table, and write what was asked for; after ^C, what there is."""
    from forerun.bench.kernel_views import kernel_sheet, save_kernel_plot
    from forerun.bench.kernels import measure_kernels
    from forerun.bench.record import write_whole
    from forerun.kernels.cpu import CpuKernels

    console = screen()
    with console.status("preparing …") as status:
        kernels = CpuKernels(
            engine.num_threads,
            activations=engine.activations,
            instruction_set=os.environ.get("FORERUN_CPU"),
            cache_dir=cache_dir(os.environ),
            progress=lambda what, *_count: status.update(f"{what} …"),
        )
        report = measure_kernels(
            kernels, progress=lambda what: status.update(f"measuring {what} …")
        )
    console.print(kernel_sheet(report))
    if record is not None:
        described = circumstances() | {"activations": engine.activations}
        write_whole(record, json.dumps(described | report.as_dict(), indent=1))
    if plot is not None:
        save_kernel_plot(report, plot)
    if not report.is_complete:
        raise typer.Exit(INTERRUPTED)


def bench_passes(engine: EngineOptions, record: Path | None) -> None:
    """Measure whole passes of a model by their number of tokens; after ^C, what there is."""
    from forerun.bench.passes import measure_passes, pass_sheet
    from forerun.bench.record import write_whole

    console = screen()
    model = replace(engine, speculative_config=None).load().model
    with console.status("measuring …"):
        report = measure_passes(model)
    console.print(pass_sheet(report))
    if record is not None:
        described = circumstances() | {
            "model": model_facts(engine.model),
            "kernels": model.kernels.name,
            **engine.rounding,
        }
        write_whole(record, json.dumps(described | report.as_dict(), indent=1))
    if not report.is_complete:
        raise typer.Exit(INTERRUPTED)
