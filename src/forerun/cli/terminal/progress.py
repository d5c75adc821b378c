"""Progress of a load or a long measurement: a bar on a terminal, occasional lines in a log."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

from forerun.errors import first_line

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import ProgressColumn

    from forerun.engine_config import Progress

_EVERY_SECONDS: Final = 30.0  # between two lines of a log


class Advance(Protocol):
    def __call__(self, num: int = 1, what: str = "") -> None:
        """Count `num` more as done; `what` is shown beside the count."""


@contextmanager
def progress(unit: str, total: int) -> Iterator[Advance]:
    """Count up to `total` on stderr."""
    if sys.stderr.isatty():
        with _bar(unit, total) as advance:
            yield advance
    else:
        yield Lines(unit, total)


@contextmanager
def _bar(unit: str, total: int) -> Iterator[Advance]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining

    columns = (BarColumn(), MofNCompleteColumn(), Remaining(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(unit, total=total)
        yield lambda num=1, what="": bar.update(task, advance=num, description=what or unit)


@contextmanager
def following(
    console: Console, what: str, column: ProgressColumn, unit: str = ""
) -> Iterator[Progress]:
    """Show the latest report on one line of a terminal, with a bar and `column` for its count.

    A report without a total (0) changes the text only. Elsewhere only those are printed, each kind
    once.
    """
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

    columns = (SpinnerColumn(), TextColumn("{task.description} …", markup=False), BarColumn())
    is_seen = console.is_terminal
    with Progress(*columns, column, console=console, transient=True, disable=not is_seen) as bar:
        task = bar.add_task(what, total=None, count="")

        def report(what: str, num_done: int, num_all: int) -> None:
            bar.update(task, description=what, count="")
            if num_all:
                count = f"{num_done} of {num_all} {unit}"
                bar.update(task, completed=num_done, total=num_all, count=count)

        yield report if is_seen else _Once(console)


@contextmanager
def loading(model: str) -> Iterator[Progress]:
    """Show progress while a model loads, in a bar that disappears; warnings stay as lines."""
    from rich.console import Console
    from rich.progress import TextColumn

    console, count = Console(stderr=True), TextColumn("{task.fields[count]}")
    bar = following(console, f"loading {model}", count, "tensors")
    with bar as show, _warnings_as_lines(console):
        yield show


@contextmanager
def _warnings_as_lines(console: Console) -> Iterator[None]:
    """Print only the first line of a warning: no source line, no traceback."""

    def show(message: Warning | str, *_where: Any, **_rest: Any) -> None:
        note = f"note: {first_line(str(message))}"
        console.print(note, markup=False, highlight=False, soft_wrap=True)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


class _Once:
    """Prints the first report of each kind that has no total: downloads and compilations."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._said = set[str]()

    def __call__(self, what: str, _num_done: int, num_all: int) -> None:
        kind = what.partition(" ")[0]
        if not num_all and kind not in self._said:
            self._said.add(kind)
            self._console.print(f"{what} …", markup=False, highlight=False, soft_wrap=True)


class Lines:
    """Prints a line at most every half minute, and one at the end."""

    def __init__(self, unit: str, total: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._unit, self._total, self._clock = unit, total, clock
        self._began = self._said = clock()
        self._done = 0

    def __call__(self, num: int = 1, what: str = "") -> None:
        self._done += num
        now = self._clock()
        if now - self._said >= _EVERY_SECONDS or self._done == self._total:
            self._said = now
            print(self._line(now - self._began, what), file=sys.stderr, flush=True)

    def _line(self, seconds: float, what: str) -> str:
        left = seconds / max(self._done, 1) * (self._total - self._done)
        doing = f" · {what}" if what else ""
        return (
            f"{self._done} of {self._total} {self._unit} in {_minutes(seconds)}, "
            f"{_minutes(left)} left{doing}"
        )


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"
