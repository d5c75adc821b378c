"""`forerun bench gpu`: how near to its memory's speed a GPU runs whole models."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated

import typer

from forerun.cli.bench.options import OutputOptions, output_options, split
from forerun.cli.bench.outcome import finish
from forerun.cli.bench.record_head import record_head
from forerun.cli.options.engine import load, loading_options
from forerun.cli.options.shared import only, takes
from forerun.cli.terminal.screen import screen
from forerun.engine_config import EngineConfig
from forerun.option_checks import require_known

if TYPE_CHECKING:
    from forerun.engine import LLM

_MAX_NUM_SEQS = 16
_MAX_LEN = 1024


@takes(engine=loading_options, output=only(output_options, "json"))
def gpu(
    engine: EngineConfig,
    output: OutputOptions,
    shapes: Annotated[
        str, typer.Option("--shapes", help="Synthetic models: 1b, 3b, 135m, or none.")
    ] = "1b,3b,135m",
    synthetic_only: Annotated[
        bool, typer.Option("--synthetic-only", help="No real model.")
    ] = False,
) -> None:
    """Read the GPU's own bandwidth, check bits, and time passes against that bandwidth."""
    from forerun.bench.gpu.measure import measure_gpu
    from forerun.bench.gpu.synthetic import SHAPES
    from forerun.engine.setup.kernel_choice import choose_kernels

    names = [] if shapes == "none" else split(shapes)
    require_known("shape", SHAPES, *names)
    on_gpu = replace(engine, device="cuda", kernels="auto", speculative_config=None)

    def load_model() -> LLM:
        max_len = engine.max_model_len or _MAX_LEN
        return load(on_gpu, max_model_len=max_len, max_num_seqs=_MAX_NUM_SEQS)

    console = screen()
    with console.status("preparing …") as status:
        asked = EngineConfig(
            "", device="cuda", dtype=engine.dtype, quantization=engine.quantization
        )
        kernels = choose_kernels(asked)
        packed = choose_kernels(replace(asked, quantization="int8"))
        found = measure_gpu(
            kernels,  # type: ignore[arg-type]  # asked for by its device
            None if engine.quantization else packed,  # type: ignore[arg-type]
            names,
            None if synthetic_only else load_model,
            lambda what: status.update(f"{what} …"),
        )
    settings = {"kernels": "cuda", **engine.rounding}
    versions = {name: version(name) for name in ("torch", "triton")}
    head = record_head(None if synthetic_only else engine.model, settings, versions)
    finish({**head, "measured": "gpu", **found}, output.json)
