"""`forerun bench parity`: the cpu kernels' greedy text, scored by the reference kernels."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from forerun.cli.bench.options import OutputOptions, at_least, output_options, strict_option
from forerun.cli.bench.outcome import collect, finish
from forerun.cli.bench.record_head import record_head
from forerun.cli.options.engine import kernel_settings, load, loading_options
from forerun.cli.options.shared import only, takes, without
from forerun.engine_config import EngineConfig


@takes(engine=without(loading_options, "no_speculation"), output=only(output_options, "json"))
def parity(
    engine: EngineConfig,
    output: OutputOptions,
    num_prompts: Annotated[int, typer.Option("--prompts", help="Number of built-in prompts.")] = 40,
    max_tokens: Annotated[int, typer.Option("--max-tokens", help="Tokens per text.")] = 64,
    strict: Annotated[bool, strict_option()] = False,
) -> None:
    """Find where the reference kernels would choose other tokens than the cpu kernels."""
    from forerun.bench.measure.parity import compare, parity_record
    from forerun.bench.prompts.named_prompts import named_prompts
    from forerun.kernels import ReferenceKernels
    from forerun.models.llama import LlamaModel
    from forerun.models.opening import open_checkpoint

    at_least("--max-tokens", max_tokens, 2)
    prompts = named_prompts(num_prompts)
    ours = load(engine, speculative_config=None)
    checkpoint = open_checkpoint(engine.model, engine.cache_folder)
    theirs = LlamaModel.load(checkpoint, ReferenceKernels())
    names = {"kernels": ours.model.kernels.name, "against": theirs.kernels.name}
    settings = {"prompts": num_prompts, "tokens": max_tokens, "temperature": 0}
    head = record_head(engine.model, settings | names | kernel_settings(engine, ours))
    began = time.monotonic()
    texts = compare(ours, theirs, prompts, max_tokens)
    found = collect("prompts", num_prompts, texts, lambda one: one.prompt)
    report = {
        **head,
        "measured": "parity",
        "is_complete": len(found) == num_prompts,
        "seconds": round(time.monotonic() - began, 1),
        **parity_record(found),
    }
    finish(report, output.json, strict=strict)
