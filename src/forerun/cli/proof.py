"""`forerun proof`: the promise of bits, checked cell by cell on a real model."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from forerun.cli.bench.options import MOST_SEED, at_least, split
from forerun.cli.bench.record_head import record_head
from forerun.cli.options.cache_dir import cache_dir
from forerun.cli.options.engine import DEFAULT_MODEL, engine_options, load
from forerun.cli.terminal.group import INTERRUPTED
from forerun.cli.terminal.output import say
from forerun.cli.terminal.progress import progress
from forerun.option_checks import require_known

if TYPE_CHECKING:
    from forerun.bench.measure.timed_run import Clock
    from forerun.bench.prompts.named_prompts import NamedPrompt
    from forerun.bench.proof.proof import Cell
    from forerun.engine import LLM

_WRITE_EVERY_SECONDS: Final = 30.0
_HOW_DRAWN: Final = (
    "every pair among drafter, branches, sampling and depth, and every prompt with every drafter; "
    "beyond that with weight 1/(depth² · branches); two sampling settings a prompt"
)


def proof(
    model: Annotated[str, typer.Option("--model", "-m", help="The target.")] = DEFAULT_MODEL,
    num_prompts: Annotated[int, typer.Option("--prompts", help="Named prompts to use.")] = 200,
    num_tokens: Annotated[int, typer.Option("--tokens", help="Tokens per run.")] = 64,
    max_depth: Annotated[int, typer.Option("--max-depth", help="Depths 1 to this.")] = 16,
    min_cells: Annotated[int, typer.Option("--min-cells", help="Run at least so many.")] = 2000,
    draft_layers: Annotated[int, typer.Option("--draft-layers", help="For own_layers.")] = 6,
    drafters: Annotated[
        str, typer.Option("--drafters", help="By comma, as the record has them; all by default.")
    ] = "",
    heads: Annotated[
        list[Path] | None,
        typer.Option("--head", help="A trained head's folder; the package's by default."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Of the sample and of the texts.")] = 1,
    device: Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")] = "auto",
    record: Annotated[
        Path | None, typer.Option("--record", help="Write every cell to this JSON file.")
    ] = None,
) -> None:
    """Run a covering sample of prompts, drafters, trees, options and depths against plain decoding.

    Every pair of choices appears together at least once. Exit code 1 if one token differs.
    """
    from forerun.bench.prompts.named_prompts import named_prompts
    from forerun.bench.proof.proof import Proof, proof_methods

    at_least("--tokens", num_tokens, 1)
    at_least("--max-depth", max_depth, 1)
    at_least("--min-cells", min_cells, 0)
    at_least("--draft-layers", draft_layers, 1)
    at_least("--seed", seed, 0, MOST_SEED)
    prompts = named_prompts(num_prompts)
    llm, path = _load(model, device, prompts, num_tokens)
    found = proof_methods(str(path), draft_layers, llm.target.heads if heads is None else heads)
    require_known("drafter", found, *split(drafters))
    methods = {name: found[name] for name in split(drafters) or found}
    sample = Proof(llm, prompts, methods, max_depth, num_tokens, seed, min_cells)
    settings = {
        "prompts": num_prompts,
        "tokens": num_tokens,
        "max_depth": max_depth,
        "min_cells": min_cells,
        "draft_layers": draft_layers,
        "drafters": list(methods),
        "seed": seed,
        "sample": _HOW_DRAWN,
        "num_plain_runs": sample.num_plain,
        "instruction_set": os.environ.get("FORERUN_CPU"),
    }
    head = record_head(model, settings) | {"measured": "proof", "kernels": llm.model.kernels.name}
    report = Report(record, head)
    with progress("runs", len(sample.runs) + sample.num_plain) as advance:
        report.follow(sample.run(advance))
    conclude(report)


def _load(
    model: str, device: str, prompts: Sequence[NamedPrompt], num_tokens: int
) -> tuple[LLM, Path]:
    """With a context for the longest of the prompts, and no longer."""
    from forerun.bench.proof.proof import BATCH
    from forerun.cli.pull import pull_with_progress
    from forerun.models.download.sources import SOURCES
    from forerun.models.download.store import find_model
    from forerun.models.opening import load_tokenizer, open_checkpoint

    folder = cache_dir()
    path = pull_with_progress(model, folder) if model in SOURCES else find_model(model, folder)
    tokenizer = load_tokenizer(open_checkpoint(path, folder))
    max_len = max(len(prompt.encode(tokenizer)) for prompt in prompts) + num_tokens
    engine = engine_options(
        model=str(path), device=device, max_model_len=max_len, no_speculation=True
    )
    return load(engine, max_num_seqs=BATCH), path


@dataclass
class Report:
    """`path` receives what was run so far, now and then and when it stops."""

    path: Path | None
    head: dict[str, Any]
    cells: list[Cell] = field(default_factory=list)
    is_complete: bool = False
    clock: Clock = time.monotonic

    def __post_init__(self) -> None:
        self.began = self.clock()

    def follow(self, cells: Iterable[Cell]) -> None:
        written = self.began
        try:
            for cell in cells:
                self.cells.append(cell)
                if self.clock() - written >= _WRITE_EVERY_SECONDS:
                    self.write()
                    written = self.clock()
            self.is_complete = True
        except KeyboardInterrupt:
            say("interrupted: what was run is kept", err=True)
        self.write()

    def write(self) -> None:
        from forerun.bench.proof.proof import as_json
        from forerun.files import write_whole

        if self.path is not None:
            seconds = round(self.clock() - self.began, 1)
            so_far = {"is_complete": self.is_complete, "seconds": seconds}
            write_whole(self.path, as_json({**self.head, **so_far}, self.cells))


def conclude(report: Report) -> None:
    """A line of figures, and the exit code."""
    from forerun.bench.proof.proof import summary

    found = summary(report.cells)
    for cell in report.cells:
        if cell.first_difference is not None:
            say(f"DIFFERENT: {cell}")
    say(
        "{num_cells} runs, {num_tokens} tokens in {target_passes} passes, {accepted_tokens} "
        "guesses accepted: {num_different} runs differ from plain decoding".format(**found)
    )
    if found["num_different"]:
        raise typer.Exit(1)
    if not report.is_complete:
        raise typer.Exit(INTERRUPTED)
