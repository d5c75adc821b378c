"""What the benches share: collecting results until ^C, a table, a record, an exit code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import typer

from forerun.cli.terminal.group import INTERRUPTED
from forerun.cli.terminal.progress import progress
from forerun.cli.terminal.screen import screen

Item = TypeVar("Item")

DIFFERENT = 1


def collect(
    unit: str, total: int, measured: Iterable[Item], label: Callable[[Item], str] = lambda _: ""
) -> list[Item]:
    """Return all results, with progress on stderr; after ^C only those so far."""
    found: list[Item] = []
    try:
        with progress(unit, total) as advance:
            for one in measured:
                found.append(one)
                advance(1, label(one))
    except KeyboardInterrupt:
        pass
    return found


def finish(report: Mapping[str, Any], path: Path | None = None, *, strict: bool = False) -> None:
    """Write the report, show it, and exit with 1 or 130 if tokens differ or it is incomplete."""
    from forerun.bench.records.report import has_other_tokens
    from forerun.bench.views.reports import report_sheet

    write_report(report, path)
    screen().print(report_sheet(report))
    leave(is_different=strict and has_other_tokens(report), is_complete=report["is_complete"])


def write_report(report: Mapping[str, Any], path: Path | None) -> None:
    from forerun.bench.records.record import write_json

    if path is not None:
        write_json(path, report)


def leave(*, is_different: bool, is_complete: bool = True) -> None:
    if is_different:
        raise typer.Exit(DIFFERENT)
    if not is_complete:
        raise typer.Exit(INTERRUPTED)
