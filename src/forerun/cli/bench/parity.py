"""`forerun bench parity`: the cpu kernels' greedy text, scored by the reference kernels."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import typer

from forerun.cli.cache_dir import cache_dir
from forerun.cli.bench.conclusion import head, show_verdicts, write_report
from forerun.cli.engine_options import EngineOptions
from forerun.cli.group import INTERRUPTED
from forerun.cli.progress import progress
from forerun.cli.screen import screen


def bench_parity(
    engine: EngineOptions, num_prompts: int, max_tokens: int, record: Path | None, *, strict: bool
) -> None:
    """After ^C, what was compared so far is shown and kept."""
    from forerun.bench.prompts.named_prompts import named_prompts
    from forerun.bench.measure.parity import compare, parity_record, parity_sheet, parity_verdict
    from forerun.kernels import ReferenceKernels
    from forerun.models.llama import LlamaModel
    from forerun.models.opening import open_checkpoint

    prompts = named_prompts(num_prompts)
    ours = replace(engine, speculative_config=None).load()
    checkpoint = open_checkpoint(engine.model, cache_dir(os.environ))
    theirs = LlamaModel.load(checkpoint, ReferenceKernels())
    names = {"kernels": ours.model.kernels.name, "against": theirs.kernels.name}
    settings = {"prompts": num_prompts, "tokens": max_tokens, "temperature": 0}
    described = head("parity", engine.model, settings | names | engine.rounding)
    found, began = [], time.monotonic()
    try:
        with progress("prompts", num_prompts) as advance:
            for one in compare(ours, theirs, prompts, max_tokens):
                found.append(one)
                advance(1, one.prompt)
    except KeyboardInterrupt:
        pass
    so_far = {
        "is_complete": len(found) == num_prompts,
        "seconds": round(time.monotonic() - began, 1),
    }
    console, verdicts = screen(), [parity_verdict(found)]
    console.print(parity_sheet(found))
    write_report(record, described, so_far | parity_record(found), verdicts)
    show_verdicts(console, verdicts, strict=strict)
    if not so_far["is_complete"]:
        raise typer.Exit(INTERRUPTED)
