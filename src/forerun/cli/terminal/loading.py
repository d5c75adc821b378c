"""What is seen while a model is loaded: a line that goes when it is done, and notes that stay."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console

from forerun.cli.terminal.progress import following

if TYPE_CHECKING:
    from forerun.engine_config import Progress


@contextmanager
def loading(model: str) -> Iterator[Progress]:
    """A bar on a terminal; on stderr, warnings are lines of their own."""
    from rich.progress import TextColumn

    console, count = Console(stderr=True), TextColumn("{task.fields[count]}")
    bar = following(console, f"loading {model}", count, "tensors")
    with bar as show, _warnings_as_lines(console):
        yield show


@contextmanager
def _warnings_as_lines(console: Console) -> Iterator[None]:
    """The sentence alone, without the line of code that Python adds."""

    def show(message: Warning | str, *_where: Any, **_rest: Any) -> None:
        console.print(f"note: {message}", markup=False, highlight=False, soft_wrap=True)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield
