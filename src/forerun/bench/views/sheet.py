"""Figures on the terminal: one table, or several where one would be too wide."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Console, ConsoleOptions, JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

from forerun.bench.views.note import Note

_GAP: Final = 2  # between two columns


@dataclass(frozen=True)
class Sheet:
    """`names` head the columns that every table repeats; `groups` those that belong together.

    Figures stand to the right; names, and the columns in `left`, to the left. `legend` are
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
        for number, columns in enumerate(self.strips(options.max_width)):
            if number:
                yield ""
            yield self._table(columns)
        if self.legend:
            yield ""
        for line in self.legend:
            yield Note(line, mark="· ", mark_style="dim", style="dim")

    def strips(self, width: int) -> list[list[int]]:
        """The columns of each table: groups are whole wherever a table can hold them."""
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
    """A token such as [/INST] is no markup."""
    return Text(entry) if isinstance(entry, str) else entry
