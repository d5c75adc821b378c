"""`forerun pull`: download a model once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forerun.cli.options.cache_dir import cache_dir
from forerun.cli.terminal.output import say

if TYPE_CHECKING:
    from rich.progress import Progress


def pull(
    model: Annotated[
        str,
        typer.Argument(
            help="A name that `forerun models` lists, or a hub id: org/name, org/name:Q8_0."
        ),
    ] = "smollm2-135m",
) -> None:
    """Download a model, check it, and keep it."""
    say(str(pull_with_progress(model, cache_dir())))


def pull_with_progress(model: str, folder: Path) -> Path:
    """Where the model lies now; a bar on stderr shows what is fetched."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, SpinnerColumn, TextColumn

    from forerun.models.download.pull import pull as pull_model

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    console = Console(stderr=True)
    is_seen = console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=not is_seen) as progress:
        return pull_model(model, folder, _Bar(progress).report)


class _Bar:
    """One line on the terminal that follows whatever is being fetched."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=None)

    def report(self, what: str, done: int, total: int) -> None:
        self._progress.update(
            self._task, description=what, completed=done, total=total if total else None
        )
