"""`forerun bench startup`: the time to the first text, and the memory it takes."""

from __future__ import annotations

import sys
import time
from typing import Annotated, Final

import typer

from forerun.cli.bench.options import OutputOptions, at_least, output_options
from forerun.cli.bench.outcome import collect, finish
from forerun.cli.bench.record_head import record_head
from forerun.cli.options.engine import as_arguments, kernel_settings, loading_options
from forerun.cli.options.shared import only, takes
from forerun.cli.terminal.group import INTERRUPTED
from forerun.cli.terminal.output import say
from forerun.engine_config import EngineConfig

_PROMPT: Final = "Once upon a time there was"


@takes(engine=loading_options, output=only(output_options, "json"))
def startup(
    engine: EngineConfig,
    output: OutputOptions,
    repeats: Annotated[int, typer.Option("--repeats", help="Starts to measure.")] = 5,
    max_tokens: Annotated[
        int, typer.Option("--max-tokens", help="Maximum tokens per answer.")
    ] = 32,
    strict: Annotated[bool, typer.Option("--strict", hidden=True)] = False,
) -> None:
    """Time `forerun generate` in fresh processes, from the command to the first byte of text.

    The first start is not counted, since it may compile.
    """
    from forerun.bench.measure import startup

    if strict:
        say("note: --strict has no meaning for startup any more; drop it.", err=True)
    at_least("--repeats", repeats, 1)
    at_least("--max-tokens", max_tokens, 2)
    arguments = ["generate", _PROMPT, "--max-tokens", str(max_tokens), *as_arguments(engine)]
    settings = {"repeats": repeats, "arguments": arguments, "seed": 0, **kernel_settings(engine)}
    head = record_head(engine.model, settings)
    num = repeats + 1
    each = (startup.start_once(sys.executable, arguments, time.perf_counter) for _ in range(num))
    starts = collect("starts", num, each, lambda start: f"{start.first_token_s:.2f} s")[1:]
    if not starts:
        raise typer.Exit(INTERRUPTED)
    report = startup.startup_report(starts, head["model"]["num_bytes"], seed=0)
    is_complete = len(starts) == repeats
    finish({**head, "measured": "startup", "is_complete": is_complete, **report}, output.json)
