"""`forerun proof`: the promise of bits, checked cell by cell on a real model."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from forerun.cli.bench.options import MOST_SEED, at_least, split
from forerun.cli.bench.record_head import record_head
from forerun.cli.machine import read_cpu
from forerun.cli.options.cache_dir import cache_dir
from forerun.cli.options.engine import DEFAULT_MODEL, engine_options, load
from forerun.cli.terminal.group import INTERRUPTED
from forerun.cli.terminal.output import say
from forerun.cli.terminal.progress import progress
from forerun.option_checks import require_known

if TYPE_CHECKING:
    from forerun.bench.measure.timed_run import Clock
    from forerun.bench.prompts.named_prompts import NamedPrompt
    from forerun.bench.proof.proof import Cell, Proof
    from forerun.engine import LLM

_WRITE_EVERY_SECONDS: Final = 30.0
_HOW_DRAWN: Final = (
    "every pair among drafter, branches, sampling, depth and batch size, and every prompt with "
    "every drafter; beyond that with weight 1/(depth² · branches); two sampling settings a prompt"
)


@dataclass(frozen=True)
class _Asked:
    """What other processes need to know to make the same proof."""

    model: str
    num_prompts: int
    num_tokens: int
    max_depth: int
    min_cells: int
    draft_layers: int
    drafters: str
    heads: list[Path] | None
    seed: int
    device: str
    num_threads: int | None

    def __call__(self) -> Proof:
        from forerun.bench.prompts.named_prompts import named_prompts
        from forerun.bench.proof.proof import Proof, proof_methods

        prompts = named_prompts(self.num_prompts)
        llm, path = self._load(prompts)
        heads = llm.target.heads if self.heads is None else self.heads
        found = proof_methods(str(path), self.draft_layers, heads)
        require_known("drafter", found, *split(self.drafters))
        methods = {name: found[name] for name in split(self.drafters) or found}
        return Proof(
            llm, prompts, methods, self.max_depth, self.num_tokens, self.seed, self.min_cells
        )

    def _load(self, prompts: Sequence[NamedPrompt]) -> tuple[LLM, Path]:
        """With a context for the longest of the prompts, and no longer."""
        from forerun.bench.proof.proof import MOST_AT_ONCE
        from forerun.cli.pull import pull_with_progress
        from forerun.engine.setup.kernel_choice import is_on_gpu
        from forerun.models.download.sources import SOURCES
        from forerun.models.download.store import find_model
        from forerun.models.opening import load_tokenizer, open_checkpoint

        folder, model = cache_dir(), self.model
        path = pull_with_progress(model, folder) if model in SOURCES else find_model(model, folder)
        tokenizer = load_tokenizer(open_checkpoint(path, folder))
        max_len = max(len(prompt.encode(tokenizer)) for prompt in prompts) + self.num_tokens
        engine = engine_options(
            model=str(path), device=self.device, max_model_len=max_len, no_speculation=True
        )
        if not is_on_gpu(engine):
            engine = replace(engine, num_threads=self.num_threads)
        return load(engine, max_num_seqs=MOST_AT_ONCE), path


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
    num_processes: Annotated[
        int, typer.Option("--processes", help="Share runs, cores or the GPU among so many.")
    ] = 1,
    record: Annotated[
        Path | None, typer.Option("--record", help="Write every cell to this JSON file.")
    ] = None,
) -> None:
    """Run a covering sample of prompts, drafters, trees, options, depths and batches against plain
    decoding.

    Every pair of choices appears together at least once. Exit code 1 if one token differs.
    """
    from forerun.bench.proof.parts import Parts

    at_least("--tokens", num_tokens, 1)
    at_least("--max-depth", max_depth, 1)
    at_least("--min-cells", min_cells, 0)
    at_least("--draft-layers", draft_layers, 1)
    at_least("--seed", seed, 0, MOST_SEED)
    at_least("--processes", num_processes, 1)
    num_threads = None if num_processes == 1 else max(1, read_cpu().num_cores // num_processes)
    asked = _Asked(
        *(model, num_prompts, num_tokens, max_depth, min_cells, draft_layers, drafters, heads),
        *(seed, device, num_threads),
    )
    sample = asked()
    settings = {
        "prompts": num_prompts,
        "tokens": num_tokens,
        "max_depth": max_depth,
        "min_cells": min_cells,
        "draft_layers": draft_layers,
        "drafters": sample.drafters,
        "seed": seed,
        "sample": _HOW_DRAWN,
        "num_plain_runs": sample.num_plain,
        "num_processes": num_processes,
        "instruction_set": os.environ.get("FORERUN_CPU") or None,
    }
    head = record_head(model, settings) | {"measured": "proof", "kernels": sample.kernels}
    report = Report(record, head)
    with progress("runs", len(sample.runs) + sample.num_plain) as advance:
        report.follow(Parts(asked, num_processes).run(sample, advance))
    conclude(report)


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
