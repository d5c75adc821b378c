"""`forerun bench passes`: what whole passes of a model cost, by their tokens."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Annotated

import typer

from forerun.cli.bench.options import LOADING, OutputOptions
from forerun.cli.bench.outcome import finish
from forerun.cli.bench.record_head import record_head
from forerun.cli.options.engine import EngineOptions, engine_options
from forerun.cli.options.shared import only, takes
from forerun.cli.terminal.screen import screen


@takes(engine=only(engine_options, *LOADING), output=only(OutputOptions, "json"))
def passes(
    engine: EngineOptions,
    output: OutputOptions,
    profile: Annotated[
        bool, typer.Option("--profile", help="Say where the time of a plain token goes.")
    ] = False,
) -> None:
    """Time passes of the model over 1 to 16 tokens: v(γ), the cost of verifying γ guesses."""
    from forerun.bench.measure.passes import SIZES, measure_passes
    from forerun.bench.measure.profile import measure_profile
    from forerun.speculation.calibration import pass_timer

    llm = replace(engine, speculative_config=None).load()
    settings = {"kernels": llm.model.kernels.name, "threads": engine.num_threads}
    head = record_head(engine.model, settings | engine.rounding)
    with screen().status("measuring …"):
        if profile:
            found = {"measured": "profile", **measure_profile(llm, time.perf_counter)}
        else:
            found = {"measured": "passes", **measure_passes(pass_timer(llm.model, max(SIZES)))}
    finish({**head, **found}, output.json)
