"""The end of a measurement: verdict lines on the terminal, a record on disk."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from forerun.cli.circumstances import circumstances, model_facts

if TYPE_CHECKING:
    from rich.console import Console

    from forerun.bench.verdicts import Outcome


def head(
    what: str, model: str, settings: Mapping[str, Any], others: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """What a record begins with; `others` are the versions of peers."""
    found = circumstances()
    found["versions"] |= dict(others or {})
    return {**found, "measured": what, "model": model_facts(model), "settings": dict(settings)}


def write_report(
    path: Path | None, head: Mapping[str, Any], report: Mapping[str, Any], found: Sequence[Outcome]
) -> None:
    from forerun.files import write_whole

    if path is not None:
        verdicts = [{**asdict(outcome), "word": outcome.word} for outcome in found]
        whole = {**head, **report, "verdicts": verdicts}
        write_whole(path, json.dumps(whole, indent=1, ensure_ascii=False, allow_nan=False))


def show_verdicts(console: Console, found: Sequence[Outcome], *, strict: bool) -> None:
    """One line each; with `strict`, exit code 1 if one fails."""
    from forerun.bench.tables import verdict_line

    console.print()
    for outcome in found:
        console.print(verdict_line(outcome))
    if strict and any(outcome.passed is False for outcome in found):
        raise typer.Exit(1)
