"""What is seen while a model is loaded: a line that goes when it is done, and notes that stay."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, TextColumn
from rich.progress import Progress as Bar

if TYPE_CHECKING:
    from forerun.engine_config import Progress


@contextmanager
def loading(model: str) -> Iterator[Progress]:
    """A bar on a terminal; on stderr, warnings are lines of their own."""
    console = Console(stderr=True)
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description} …", markup=False),
        BarColumn(),
        TextColumn("{task.fields[count]}"),
    )
    is_seen = console.is_terminal
    with Bar(*columns, console=console, transient=True, disable=not is_seen) as bar:
        task = bar.add_task(f"loading {model}", total=None, count="")

        def show(what: str, num_done: int, num_all: int) -> None:
            """What has no end of its own is said beside the bar as it stands."""
            bar.update(task, description=what)
            if num_all:
                count = f"{num_done} of {num_all} tensors"
                bar.update(task, completed=num_done, total=num_all, count=count)

        with _warnings_as_lines(console):
            yield show


@contextmanager
def _warnings_as_lines(console: Console) -> Iterator[None]:
    """The sentence alone, without the line of code that Python adds."""

    def show(message: Warning | str, *_where: Any, **_rest: Any) -> None:
        console.print(f"note: {message}", markup=False, highlight=False, soft_wrap=True)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield
