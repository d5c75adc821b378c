"""`forerun proof`: the promise of bits, checked cell by cell on a real model."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forerun.cli.cache_dir import cache_dir
from forerun.cli.engine_options import DEFAULT_MODEL

if TYPE_CHECKING:
    from forerun.bench.proof import Cell, Proof


def proof(
    model: Annotated[str, typer.Option("--model", "-m", help="The target.")] = DEFAULT_MODEL,
    num_prompts: Annotated[int, typer.Option("--prompts", help="Named prompts to use.")] = 40,
    num_tokens: Annotated[int, typer.Option("--tokens", help="Tokens per run.")] = 32,
    max_depth: Annotated[int, typer.Option("--max-depth", help="Depths 1 to this.")] = 8,
    min_cells: Annotated[int, typer.Option("--min-cells", help="Run at least so many.")] = 300,
    draft_layers: Annotated[int, typer.Option("--draft-layers", help="For own_layers.")] = 6,
    seed: Annotated[int, typer.Option("--seed", help="Of the sample and of the texts.")] = 1,
    record: Annotated[
        Path | None, typer.Option("--record", help="Write every cell to this JSON file.")
    ] = None,
) -> None:
    """Run a covering sample of prompts, drafters, trees, options and depths against plain decoding.

    Every pair of choices appears together at least once. Exit code 1 if one token differs.
    """
    from forerun.bench.named_prompts import named_prompts
    from forerun.bench.proof import Proof, as_record, speculative_methods
    from forerun.bench.record import write_whole
    from forerun.cli.pull import pull_with_progress
    from forerun.engine import LLM
    from forerun.models.sources import SOURCES

    folder = cache_dir(os.environ)
    path = pull_with_progress(model, folder) if model in SOURCES else Path(model)
    llm = LLM(path, max_model_len=512, cache_dir=folder)
    methods = speculative_methods(str(path), draft_layers)
    sample = Proof(llm, named_prompts(num_prompts), methods, max_depth, num_tokens, seed, min_cells)
    cells = _run(sample)
    if record is not None:
        settings = {"prompts": num_prompts, "tokens": num_tokens, "max_depth": max_depth}
        described = _described(model, path, llm.model.kernels.name, settings | {"seed": seed})
        write_whole(record, _as_json(described | as_record(cells)))
    different = [cell for cell in cells if cell.first_difference is not None]
    for cell in different:
        typer.echo(f"DIFFERENT: {cell}")
    num_passes = sum(cell.target_passes for cell in cells)
    typer.echo(
        f"{len(cells)} runs, {sum(cell.num_tokens for cell in cells)} tokens in {num_passes} "
        f"passes, {sum(cell.accepted_tokens for cell in cells)} guesses held: "
        f"{len(different)} runs differ from plain decoding"
    )
    if different:
        raise typer.Exit(1)


def _run(sample: Proof) -> list[Cell]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("runs", total=sample.num_runs)
        return list(sample.run(lambda num: progress.advance(task, num)))


def _described(model: str, path: Path, kernels: str, settings: dict[str, Any]) -> dict[str, Any]:
    from forerun.bench.identity import model_identity

    identity = {"model": model_identity(model, path), "kernels": kernels, "settings": settings}
    return describe_run() | identity


def describe_run() -> dict[str, Any]:
    """When, where and with which code something was measured."""
    from datetime import UTC, datetime

    from forerun.bench.identity import commit_of, versions
    from forerun.cli.machine import read_cpu

    cpu = read_cpu()
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit_of(Path(__file__).parent),
        "machine": {"cpu": cpu.name, "features": list(cpu.features), "num_cores": cpu.num_cores},
        "versions": versions({}),
    }


def _as_json(record: dict[str, Any]) -> str:
    """Readable, with one line for each cell."""
    import json

    cells = record.pop("cells")
    head = json.dumps(record, indent=1, ensure_ascii=False)[:-2]
    rows = ",\n".join("  " + json.dumps(cell, ensure_ascii=False) for cell in cells)
    return f'{head},\n "cells": [\n{rows}\n ]\n}}'
