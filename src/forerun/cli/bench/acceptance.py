"""`forerun bench acceptance`: tokens per pass over a file of questions, class by class."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from forerun.cli.bench.options import (
    MOST_SEED,
    OutputOptions,
    at_least,
    load_with_room,
    output_options,
    split,
)
from forerun.cli.bench.outcome import collect, finish
from forerun.cli.bench.record_head import record_head
from forerun.cli.options.engine import kernel_settings, measuring_options
from forerun.cli.options.shared import bundle, only, takes
from forerun.cli.terminal.group import INTERRUPTED
from forerun.engine_config import EngineConfig
from forerun.errors import InvalidOption
from forerun.option_fields import option
from forerun.types import SamplingParams


@dataclass(frozen=True)
class AcceptanceOptions:
    temperatures: str = option("0,0.8", "Temperatures, separated by commas; 0 is greedy.")
    max_tokens: int = option(200, "Maximum tokens per answer.")
    num_questions: int | None = option(None, "First questions of each class to use. Default: all.")
    seed: int = option(0, "Seed of sampling.")

    def __post_init__(self) -> None:
        at_least("--max-tokens", self.max_tokens, 2)
        at_least("--num-questions", self.num_questions, 1)
        at_least("--seed", self.seed, 0, MOST_SEED)
        try:
            found = [float(part) for part in split(self.temperatures)]
        except ValueError:
            found = []
        if not found:
            raise InvalidOption(
                f"--temperatures {self.temperatures!r} is not a list of numbers; write 0,0.8."
            )

    @property
    def params(self) -> list[SamplingParams]:
        params = SamplingParams(max_tokens=self.max_tokens, seed=self.seed)
        return [params.with_(temperature=float(part)) for part in split(self.temperatures)]


@takes(
    options=bundle(AcceptanceOptions), engine=measuring_options, output=only(output_options, "json")
)
def acceptance(
    options: AcceptanceOptions,
    engine: EngineConfig,
    output: OutputOptions,
    questions: Annotated[
        Path,
        typer.Option("--questions", help='File of JSON lines with "category" and "turns".'),
    ],
) -> None:
    """Count tokens per target pass over questions such as Spec-Bench's, class by class.

    With "adaptive": false in --speculative-config the result does not depend on the machine.
    """
    from forerun.bench.acceptance import by_class, read_questions, tokens_a_pass

    classes = by_class(read_questions(questions), options.num_questions)
    if engine.speculation is None:
        raise InvalidOption("plain decoding has one token per pass; give a --speculative-config.")
    llm = load_with_room(engine, options.max_tokens)
    settings = {
        "questions": questions.name,
        "num_questions": {name: len(rows) for name, rows in classes.items()},
        "max_tokens": options.max_tokens,
        "seed": options.seed,
        "speculative_config": asdict(engine.speculation),
        "kernels": type(llm.model.kernels).__name__,
        **kernel_settings(engine, llm),
    }
    head = record_head(engine.model, settings)
    total = len(classes) * len(options.params)
    rows = collect(
        "classes",
        total,
        tokens_a_pass(llm, classes, options.params),
        lambda row: f"{row['class']} {row['tokens_per_pass']:.2f}",
    )
    if not rows:
        raise typer.Exit(INTERRUPTED)
    means = {
        f"T{each.temperature:g}".replace(".", "_"): sum(found) / len(found)
        for each in options.params
        if (found := [r["tokens_per_pass"] for r in rows if r["temperature"] == each.temperature])
    }
    is_complete = len(rows) == total
    finish(
        {**head, "measured": "acceptance", "is_complete": is_complete, "rows": rows, "mean": means},
        output.json,
    )
