"""`forerun bench gpu`: how near to its memory's speed a GPU runs whole models."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated

import typer

from forerun.cli.bench.options import LOADING, OutputOptions, output_options, split
from forerun.cli.bench.outcome import finish
from forerun.cli.bench.record_head import record_head
from forerun.cli.options.engine import EngineOptions, engine_options
from forerun.cli.options.shared import only, takes
from forerun.cli.terminal.screen import screen
from forerun.errors import unknown_name

if TYPE_CHECKING:
    from forerun.engine import LLM

_MAX_NUM_SEQS = 16
_MAX_LEN = 1024


@takes(engine=only(engine_options, *LOADING), output=only(output_options, "json_path"))
def gpu(
    engine: EngineOptions,
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
    from forerun.engine.setup.kernel_choice import CpuOptions, choose_kernels

    names = [] if shapes == "none" else split(shapes)
    for name in names:
        if name not in SHAPES:
            raise unknown_name("shape", name, SHAPES)
    on_gpu = replace(engine, device="cuda", kernels="auto", speculative_config=None)
    on_gpu = replace(on_gpu, max_model_len=engine.max_model_len or _MAX_LEN)

    def load() -> LLM:
        return on_gpu.load(_MAX_NUM_SEQS)

    console = screen()
    with console.status("preparing …") as status:
        options = (CpuOptions(), CpuOptions(quantization="int8"))
        plain, packed = (
            choose_kernels("auto", o, None, None, "cuda", engine.dtype) for o in options
        )
        found = measure_gpu(
            plain,  # type: ignore[arg-type]  # asked for by its device
            packed,  # type: ignore[arg-type]
            names,
            None if synthetic_only else load,
            lambda what: status.update(f"{what} …"),
        )
    settings = {"kernels": "cuda", **engine.rounding}
    versions = {name: version(name) for name in ("torch", "triton")}
    head = record_head(None if synthetic_only else engine.model, settings, versions)
    finish({**head, "measured": "gpu", **found}, output.json)
