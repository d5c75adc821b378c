"""`forerun bench passes`: the cost of whole passes of a model, by number of tokens."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from forerun.cli.bench.options import OutputOptions, output_options
from forerun.cli.bench.outcome import finish
from forerun.cli.bench.record_head import record_head
from forerun.cli.options.engine import kernel_settings, load, loading_options
from forerun.cli.options.shared import only, takes, without
from forerun.cli.terminal.screen import screen
from forerun.engine_config import EngineConfig


@takes(engine=without(loading_options, "no_speculation"), output=only(output_options, "json"))
def passes(
    engine: EngineConfig,
    output: OutputOptions,
    profile: Annotated[
        bool, typer.Option("--profile", help="Show where the time of a plain token goes.")
    ] = False,
) -> None:
    """Time passes of the model over 1 to 16 tokens: v(γ), the cost of verifying γ guesses."""
    from forerun.bench.measure.passes import SIZES, measure_passes
    from forerun.bench.measure.profile import measure_profile
    from forerun.speculation.costs.calibration import pass_timer

    llm = load(engine, speculative_config=None)
    settings = {"kernels": llm.model.kernels.name, "threads": engine.num_threads}
    head = record_head(engine.model, settings | kernel_settings(engine, llm))
    with screen().status("measuring …"):
        if profile:
            found = {"measured": "profile", **measure_profile(llm, time.perf_counter)}
        else:
            found = {"measured": "passes", **measure_passes(pass_timer(llm.model, max(SIZES)))}
    finish({**head, **found}, output.json)
