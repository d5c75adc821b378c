"""`forerun bench startup`: how long a newcomer waits, and what it takes."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Final

import typer

from forerun.cli.conclusion import head, show_verdicts, write_report
from forerun.cli.engine_options import EngineOptions
from forerun.cli.group import INTERRUPTED
from forerun.cli.progress import progress
from forerun.cli.screen import screen

_PROMPT: Final = "Once upon a time there was"


def bench_startup(
    engine: EngineOptions, max_tokens: int, repeats: int, record: Path | None, *, strict: bool
) -> None:
    """One start that nobody counts, since it may compile; then `repeats` that count.

    After ^C, the starts that there are.
    """
    from forerun.bench.startup import StartReport, start_once, start_sheet

    arguments = ["generate", _PROMPT, "--model", engine.model, "--max-tokens", str(max_tokens)]
    for option, value in _passed_on(engine).items():
        if value is not None:
            arguments += [option, str(value)]
    if engine.speculative_config is None:
        arguments.append("--no-speculation")
    settings = {"repeats": repeats, "arguments": arguments, "seed": 0, **engine.rounding}
    described = head("startup", engine.model, settings)
    starts = []
    try:
        with progress("starts", repeats + 1) as advance:
            for number in range(repeats + 1):
                start = start_once(sys.executable, arguments, time.perf_counter)
                advance(1, f"{start.first_token_s:.2f} s")
                if number:
                    starts.append(start)
    except KeyboardInterrupt:
        if not starts:
            raise
    report = StartReport(starts, described["model"]["num_bytes"], seed=0)
    console, is_complete = screen(), len(starts) == repeats
    console.print(start_sheet(report))
    found = {"is_complete": is_complete, **report.as_dict()}
    write_report(record, described, found, report.verdicts())
    show_verdicts(console, report.verdicts(), strict=strict)
    if not is_complete:
        raise typer.Exit(INTERRUPTED)


def _passed_on(engine: EngineOptions) -> dict[str, object]:
    return {
        "--kernels": engine.kernels,
        "--device": engine.device,
        "--dtype": engine.dtype,
        "--threads": engine.num_threads,
        "--quantization": engine.quantization,
        "--activations": engine.activations,
        "--max-model-len": engine.max_model_len,
        "--kv-cache-memory": engine.kv_cache_memory,
        "--kv-cache-backend": engine.kv_cache_backend,
    }
