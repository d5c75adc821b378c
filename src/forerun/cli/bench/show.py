"""`forerun bench show`: print a record without measuring."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forerun.cli.bench.options import OutputOptions, output_options, strict_option
from forerun.cli.bench.outcome import leave
from forerun.cli.options.shared import only, takes
from forerun.cli.terminal.screen import screen
from forerun.errors import InvalidOption

if TYPE_CHECKING:
    from forerun.bench.records.record import Record


@takes(output=only(output_options, "plot", "html"))
def show(
    output: OutputOptions,
    path: Annotated[Path, typer.Argument(help="Record of a bench (--json) or of `forerun proof`.")],
    strict: Annotated[bool, strict_option()] = False,
) -> None:
    """Print a record, and draw it with --plot or --html; nothing is measured."""
    from forerun.bench.records.record import InvalidRecord, Record
    from forerun.bench.records.report import has_other_tokens, read_any
    from forerun.bench.views.reports import report_sheet

    found = read_any(path)
    if isinstance(found, Record):
        return show_record(found, output, strict=strict)
    if output.html is not None or output.plot is not None:
        raise InvalidOption("--html and --plot draw records of speculation only; drop them.")
    try:
        sheet, is_different = report_sheet(found), has_other_tokens(found)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise InvalidRecord(f"{path} is damaged ({error!r}); measure again.") from None
    screen().print(sheet)
    return leave(is_different=strict and is_different)


def show_record(record: Record, output: OutputOptions, *, strict: bool) -> None:
    """Print a speculation record's table, and write the page and the figure of `output`."""
    from forerun.bench.records.summary import differing_cells
    from forerun.bench.views.tables import print_record

    console = screen()
    print_record(console, record)
    if output.html is not None:
        from forerun.bench.views.html_report import write_report

        write_report(record, output.html)
    if output.plot is not None:
        from forerun.bench.views.plots import save_plot

        save_plot(record, output.plot)
    for path in (output.json, output.html, output.plot):
        if path is not None:
            console.print(f"written: {path}", style="dim")
    leave(is_different=strict and bool(differing_cells(record.cells)))
