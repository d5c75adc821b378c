"""`forerun pull`: download a model once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from forerun.cli.terminal.output import say
from forerun.cli.terminal.progress import following
from forerun.models.download.store import default_cache_dir


def pull(
    model: Annotated[
        str,
        typer.Argument(help="Name from `forerun models`, or a hub id: org/name, org/name:Q8_0."),
    ] = "smollm2-135m",
) -> None:
    """Download a model once, and verify it."""
    say(str(pull_with_progress(model, default_cache_dir())))


def pull_with_progress(model: str, folder: Path) -> Path:
    """Download a model with a progress bar on stderr; return its path."""
    from rich.console import Console
    from rich.progress import DownloadColumn

    from forerun.models.download.pull import pull as pull_model

    with following(Console(stderr=True), "", DownloadColumn()) as report:
        return pull_model(model, folder, report)
