"""`forerun proof`: the promise of the same tokens, checked run by run on a real model."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from forerun.cli.bench.options import MOST_SEED, at_least, split
from forerun.cli.bench.record_head import record_head
from forerun.cli.machine import read_cpu
from forerun.cli.options.engine import DEFAULT_MODEL, engine_options, load
from forerun.cli.options.shared import bundle, takes
from forerun.cli.terminal.group import INTERRUPTED
from forerun.cli.terminal.output import say
from forerun.cli.terminal.progress import progress
from forerun.models.download.store import default_cache_dir, find_model
from forerun.option_checks import require_known
from forerun.option_fields import option

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
class ProofOptions:
    model: str = option(DEFAULT_MODEL, "Target model, as for `forerun generate`.", "--model", "-m")
    prompts: int = option(200, "Number of built-in prompts.")
    tokens: int = option(64, "Tokens per run.")
    max_depth: int = option(16, "Maximum depth.")
    min_cells: int = option(2000, "Minimum number of runs.")
    draft_layers: int = option(6, "Layers of the target in own_layers.")
    drafters: str = option("", "Drafters, separated by commas, as named in records. Default: all.")
    heads: tuple[Path, ...] | None = option(
        None, "Folder of a trained head; repeatable. Default: those in the package.", "--head"
    )
    seed: int = option(1, "Seed of the sample and of the texts.")
    device: str = option("auto", "Device: auto (a GPU if torch sees one), cpu or cuda.")
    num_processes: int = option(
        1, "Processes that share the runs, and the cores or the GPU.", "--processes"
    )
    record: Path | None = option(None, "Write every run to this JSON file.")

    def __post_init__(self) -> None:
        for name, least in (("tokens", 1), ("max_depth", 1), ("min_cells", 0), ("draft_layers", 1)):
            at_least(f"--{name.replace('_', '-')}", getattr(self, name), least)
        at_least("--seed", self.seed, 0, MOST_SEED)
        at_least("--processes", self.num_processes, 1)

    def proof(self) -> Proof:
        """Make the proof; it is the same in every process."""
        from forerun.bench.prompts.named_prompts import named_prompts
        from forerun.bench.proof.proof import Proof, proof_methods

        prompts = named_prompts(self.prompts)
        llm, path = self._load(prompts)
        heads = llm.target.heads if self.heads is None else self.heads
        found = proof_methods(str(path), self.draft_layers, heads, llm.target.phrases)
        require_known("drafter", found, *split(self.drafters))
        methods = {name: found[name] for name in split(self.drafters) or found}
        return Proof(llm, prompts, methods, self.max_depth, self.tokens, self.seed, self.min_cells)

    def _load(self, prompts: Sequence[NamedPrompt]) -> tuple[LLM, Path]:
        """Load the model with a context for the longest prompt; return it and its path."""
        from forerun.bench.proof.proof import MOST_AT_ONCE
        from forerun.cli.pull import pull_with_progress
        from forerun.engine.setup.kernel_choice import is_on_gpu
        from forerun.models.download.sources import SOURCES
        from forerun.models.opening import load_tokenizer, open_checkpoint

        folder, model = default_cache_dir(), self.model
        path = pull_with_progress(model, folder) if model in SOURCES else find_model(model, folder)
        tokenizer = load_tokenizer(open_checkpoint(path, folder))
        max_len = max(len(prompt.encode(tokenizer)) for prompt in prompts) + self.tokens
        engine = engine_options(
            model=str(path), device=self.device, max_model_len=max_len, no_speculation=True
        )
        if self.num_processes > 1 and not is_on_gpu(engine):
            num_threads = max(1, read_cpu().num_threads // self.num_processes)
            engine = replace(engine, num_threads=num_threads)
        return load(engine, max_num_seqs=MOST_AT_ONCE), path


@takes(options=bundle(ProofOptions))
def proof(options: ProofOptions) -> None:
    """Check that speculation gives the same tokens as plain decoding.

    The runs cover prompts, drafters, trees, sampling options, depths and batches.
    Every pair of choices appears together at least once.

    Exit code 1 if a token differs.
    """
    from forerun.bench.proof.parts import Parts

    sample = options.proof()
    settings = asdict(options) | {
        "drafters": sample.drafters,
        "sample": _HOW_DRAWN,
        "num_plain_runs": sample.num_plain,
        "instruction_set": os.environ.get("FORERUN_CPU") or None,
    }
    for name in ("model", "heads", "device", "record"):  # recorded elsewhere, or local
        del settings[name]
    head = record_head(options.model, settings) | {"measured": "proof", "kernels": sample.kernels}
    report = Report(options.record, head)
    with progress("runs", len(sample.runs) + sample.num_plain) as advance:
        report.follow(Parts(options.proof, options.num_processes).run(sample, advance))
    conclude(report)


@dataclass
class Report:
    """The runs so far; written to `path` every half minute and at the end."""

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
            say("interrupted: the finished runs are kept", err=True)
        self.write()

    def write(self) -> None:
        from forerun.bench.proof.proof import as_json
        from forerun.files import write_whole

        if self.path is not None:
            seconds = round(self.clock() - self.began, 1)
            so_far = {"is_complete": self.is_complete, "seconds": seconds}
            write_whole(self.path, as_json({**self.head, **so_far}, self.cells))


def conclude(report: Report) -> None:
    """Print the runs that differ and a summary; exit with the code that they deserve."""
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
