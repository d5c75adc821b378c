"""`forerun bench gpu`: how close a GPU comes to its memory bandwidth with whole models."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated

import typer

from forerun.cli.bench.options import OutputOptions, output_options, split
from forerun.cli.bench.outcome import finish
from forerun.cli.bench.record_head import record_head
from forerun.cli.options.engine import as_arguments, kernel_settings, load, loading_options
from forerun.cli.options.shared import only, takes
from forerun.cli.terminal.screen import screen
from forerun.engine_config import EngineConfig
from forerun.errors import InvalidOption
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
        str,
        typer.Option(
            "--shapes", help="Synthetic models, separated by commas: 1b, 3b, 135m; or none."
        ),
    ] = "1b,3b,135m",
    synthetic_only: Annotated[
        bool, typer.Option("--synthetic-only", help="Skip the real model.")
    ] = False,
) -> None:
    """Measure a GPU's memory bandwidth, check numerics and bits, and time passes against it.

    Exit code 1 if bits, answers or logits are not what they must be.
    """
    from forerun.bench.gpu.measure import measure_gpu
    from forerun.bench.gpu.synthetic import SHAPES
    from forerun.engine.setup.kernel_choice import choose_kernels

    names = [] if shapes == "none" else split(shapes)
    require_known("shape", SHAPES, *names)
    if engine.device == "cpu" or engine.kernels not in ("auto", "cuda"):
        raise InvalidOption("bench gpu measures a GPU; drop --device and --kernels.")
    start = replace(engine, device="cuda")
    on_gpu = replace(start, speculative_config=None)

    def load_model() -> LLM:
        max_len = engine.max_model_len or _MAX_LEN
        return load(on_gpu, max_model_len=max_len, max_num_seqs=_MAX_NUM_SEQS)

    console = screen()
    with console.status("preparing …") as status:
        kernels = choose_kernels(on_gpu)
        packed = choose_kernels(replace(on_gpu, quantization="int8"))
        found = measure_gpu(
            kernels,  # type: ignore[arg-type]  # asked for by its device
            None if engine.quantization else packed,  # type: ignore[arg-type]
            names,
            None if synthetic_only else load_model,
            ["generate", "Once upon a time there was", "--max-tokens", "2", *as_arguments(start)],
            lambda what: status.update(f"{what} …"),
        )
    settings = {"kernels": "cuda", **kernel_settings(on_gpu)}
    versions = {name: version(name) for name in ("torch", "triton")}
    head = record_head(None if synthetic_only else engine.model, settings, versions)
    finish({**head, "measured": "gpu", **found}, output.json, strict=True)
