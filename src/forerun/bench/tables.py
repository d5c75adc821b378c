"""A record on the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from forerun.bench.bootstrap import Interval
from forerun.bench.cells import Cell, Quantiles
from forerun.bench.prediction import TOLERANCE
from forerun.bench.record import Record
from forerun.bench.verdicts import Outcome

_HEADINGS = (
    ("class", "left"),
    ("contender", "left"),
    ("tok/s", "right"),
    ("tok/pass", "right"),
    ("held", "right"),
    ("by position", "left"),
    ("first token ms", "right"),
    ("wait ms", "right"),
    ("ms/token", "right"),
    ("× plain [95 %]", "right"),
    ("whole", "right"),
    ("first ×", "right"),
    ("predicted", "right"),
)
_COLOURS = {True: "bold green", False: "bold red", None: "yellow"}


def print_record(console: Console, record: Record) -> None:
    console.print(_table(record))
    console.print(
        "times are p50/p95/p99 · wait: before each token, 0 for those that come together · "
        "ms/token: mean of an answer · × plain: decoding; whole: with the prompt; "
        "first ×: plain's time to first token ÷ this one's",
        style="dim",
    )
    for line in _notes(record):
        console.print(line, style="dim")
    console.print()
    for outcome in record.verdicts:
        console.print(verdict_line(outcome))


def _table(record: Record) -> Table:
    title = f"{record.model.get('name')} on {record.machine.get('cpu')}"
    unfinished = "" if record.is_complete else " (interrupted)"
    table = Table(title=title + unfinished, box=None, pad_edge=False, title_justify="left")
    for heading, justify in _HEADINGS:
        is_name = justify != "right"  # never cut
        table.add_column(heading, justify="left" if is_name else "right", no_wrap=is_name)
    last = None
    for cell in record.cells:
        table.add_row(*_row(cell, is_first=cell.workload != last))
        last = cell.workload
    return table


def _row(cell: Cell, *, is_first: bool) -> Iterator[str | Text]:
    yield cell.workload if is_first else ""
    yield cell.contender
    yield _number(cell.tokens_per_second, 1)
    yield _number(cell.tokens_per_pass, 2)
    yield "–" if cell.acceptance_rate is None else f"{cell.acceptance_rate:.0%}"
    yield " ".join(map(_share, cell.acceptance_by_position[:5]))
    yield _quantiles(cell.ttft_ms)
    yield _quantiles(cell.wait_ms)
    yield _quantiles(cell.answer_ms)
    yield _ratio(cell.ratio)
    yield "–" if cell.ratio_whole is None else f"{cell.ratio_whole.median:.2f}"
    yield _ratio(cell.ratio_ttft)
    yield "–" if cell.prediction is None else f"{cell.prediction.predicted:.2f}"


def _share(value: float) -> str:
    """.53, or 1 where it rounds to that."""
    text = f"{value:.2f}"
    return "1" if text == "1.00" else text.removeprefix("0")


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _quantiles(found: Quantiles | None) -> str:
    if found is None:
        return "–"
    return "/".join(f"{found[name]:.0f}" for name in ("p50", "p95", "p99"))


def _ratio(interval: Interval | None) -> Text:
    if interval is None:
        return Text("–")
    style = "green" if interval.low > 1 else "red" if interval.high < 1 else ""
    return Text(f"{interval.median:.2f} [{interval.low:.2f}, {interval.high:.2f}]", style)


def verdict_line(outcome: Outcome) -> Text:
    word = (outcome.word, _COLOURS[outcome.passed])
    return Text.assemble(word, f"  {outcome.requirement}: {outcome.found}")


def _notes(record: Record) -> Iterator[str]:
    yield from _prediction_note(record)
    for cell in record.cells:
        if cell.prediction is not None and cell.prediction.reason:
            place = f"{cell.workload} × {cell.contender}"
            yield f"prediction {cell.prediction.error:+.0%} in {place}: {cell.prediction.reason}"
    for name, about in record.contenders.items():
        if "precision" in about:
            yield f"{name}: {about['precision']}"
    for d in record.divergences:
        margin = "far" if d["margin"] is None else f"margin {d['margin']:.3f}"
        yield (
            f"{d['contender']} leaves our text in {d['workload']} ({d['prompt']}) at token "
            f"{d['at']}: ours {d['ours']!r}, theirs {d['theirs']!r}, {margin}"
        )


def _prediction_note(record: Record) -> Iterator[str]:
    """Information, no promise: whatever the error is, a reason follows."""
    errors = [(abs(c.prediction.error), c) for c in record.cells if c.prediction]
    if errors:
        beyond = sum(error > TOLERANCE for error, _ in errors)
        worst, cell = max(errors, key=lambda pair: pair[0])
        yield (
            f"predictions: {beyond} of {len(errors)} cells more than {TOLERANCE:.0%} off; "
            f"largest {worst:.0%}, in {cell.workload} × {cell.contender}"
        )
