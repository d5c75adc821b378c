"""A sheet on the terminal: a title, a table (split if it is too wide), and notes."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Console, ConsoleOptions, JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

_GAP: Final = 2  # between two columns
_ROUNDING: Final = ("quantization", "activations", "kv_cache_dtype")
_WHOLE: Final = re.compile(r"\S+ \[[^\[\] ]+, [^\[\] ]+\]|' \S*'")  # 1.37 [1.28, 1.46], ' word'
_NO_BREAK: Final = "\N{NO-BREAK SPACE}"


@dataclass(frozen=True)
class Sheet:
    """`names` are the headings of columns that every table repeats; each of `groups` belongs
    together.

    Figures are aligned right; names, and the columns in `left`, are aligned left. `legend` has the
    sentences below.
    """

    title: str
    names: Sequence[str]
    groups: Sequence[Sequence[str]]
    rows: Sequence[Sequence[str | Text]]
    left: Sequence[str] = ()
    legend: Sequence[str] = ()

    @property
    def headings(self) -> list[str]:
        return [*self.names, *(heading for group in self.groups for heading in group)]

    def __rich_console__(
        self, _console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        if self.title:
            yield Text(self.title, "italic")
        for number, columns in enumerate(self.strips(options.max_width) if self.rows else ()):
            if number:
                yield ""
            yield self._table(columns)
        if self.legend and self.rows:
            yield ""
        for line in self.legend:
            yield Note(line, mark="· ", mark_style="dim", style="dim")

    def strips(self, width: int) -> list[list[int]]:
        """Return the columns of each table; a group is split only if no table can hold it."""
        num_names = column = len(self.names)
        takes = [found + _GAP for found in self._widths()]
        room = width + _GAP - sum(takes[:num_names])
        strips, left = list[list[int]](), 0
        for group in self.groups:
            columns = range(column, column := column + len(group))
            if sum(takes[idx] for idx in columns) > left:
                left = 0
            for idx in columns:
                if takes[idx] > left:
                    strips.append(list(range(num_names)))
                    left = room
                strips[-1].append(idx)
                left -= takes[idx]
        return strips

    def _widths(self) -> list[int]:
        lines = zip(self.headings, *self.rows, strict=True)
        return [max(_text(entry).cell_len for entry in column) for column in lines]

    def _table(self, columns: Sequence[int]) -> Table:
        table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0))
        left = {*self.names, *self.left}
        for heading in (self.headings[idx] for idx in columns):
            justify: JustifyMethod = "left" if heading in left else "right"
            table.add_column(_text(heading), justify=justify, overflow="fold")
        for row in self.rows:
            table.add_row(*(_text(row[idx]) for idx in columns))
        return table


def _text(entry: str | Text) -> Text:
    """Make a `Text`, since a token such as [/INST] is not markup."""
    return Text(entry) if isinstance(entry, str) else entry


@dataclass(frozen=True)
class Note:
    """A sentence, folded between words but never inside an interval or a token. `mark` precedes the
    first line; the others are indented to the text."""

    text: str
    mark: str = ""
    mark_style: str = ""
    style: str = ""

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> Iterator[Text]:
        lines = self.lines(options.max_width)
        yield Text.assemble((self.mark, self.mark_style), (lines[0], self.style))
        for line in lines[1:]:
            yield Text(" " * len(self.mark) + line, self.style)

    def lines(self, width: int) -> list[str]:
        whole = _WHOLE.sub(lambda found: found[0].replace(" ", _NO_BREAK), self.text)
        folded = textwrap.wrap(
            whole, max(width - len(self.mark), 1), break_long_words=False, break_on_hyphens=False
        )
        return [line.replace(_NO_BREAK, " ") for line in folded] or [""]


def title(
    what: str,
    model: Mapping[str, Any],
    machine: Mapping[str, Any],
    settings: Mapping[str, Any],
    *,
    is_complete: bool,
) -> str:
    """Return the title of a table: what was measured, of which model, where."""
    name = ": ".join(part for part in (what, model.get("name")) if part)
    unfinished = "" if is_complete else " (interrupted)"
    if gpu := _gpu(machine, settings):
        packed = {"quantization": settings.get("quantization")}
        return f"{name} on {gpu}{rounding(packed)}{unfinished}"
    return f"{name} on {machine.get('cpu')}{rounding(settings)}{unfinished}"


def _gpu(machine: Mapping[str, Any], settings: Mapping[str, Any]) -> str | None:
    """Return the GPU that was measured on, if one was; older records do not name it."""
    device = str(settings.get("device"))
    name = device if device.startswith("NVIDIA") else None
    if settings.get("kernels") in ("CudaKernels", "cuda"):
        return machine.get("gpu") or name or "a GPU"
    return name


def rounding(settings: Mapping[str, Any]) -> str:
    """Return how weights, activations and KV rows were rounded, as far as the record says."""
    asked = [f", {name} {settings[name]}" for name in _ROUNDING if settings.get(name) is not None]
    return "".join(asked)
