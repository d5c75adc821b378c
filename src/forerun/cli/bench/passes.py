"""`forerun bench passes`: what whole passes of a model cost, by their tokens."""

from __future__ import annotations

from dataclasses import replace

from forerun.cli.bench.options import LOADING, OutputOptions, output_options
from forerun.cli.bench.outcome import finish
from forerun.cli.bench.record_head import record_head
from forerun.cli.engine_options import EngineOptions, engine_options
from forerun.cli.screen import screen
from forerun.cli.shared_options import only, takes


@takes(engine=only(engine_options, *LOADING), output=only(output_options, "json_path"))
def passes(engine: EngineOptions, output: OutputOptions) -> None:
    """Time passes of the model over 1 to 16 tokens: v(γ), the cost of verifying γ guesses."""
    from forerun.bench.measure.passes import SIZES, measure_passes
    from forerun.speculation.calibration import pass_timer

    model = replace(engine, speculative_config=None).load().model
    with screen().status("measuring …"):
        found = measure_passes(pass_timer(model, max(SIZES)))
    head = record_head(engine.model, {"kernels": model.kernels.name, **engine.rounding})
    finish({**head, "measured": "passes", **found}, output.json)
