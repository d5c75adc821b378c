"""A record on the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from forerun.bench.measure.bootstrap import Interval
from forerun.bench.records.cells import Cell, Quantiles
from forerun.bench.measure.contenders import PLAIN
from forerun.bench.measure.prediction import TOLERANCE
from forerun.bench.records.record import Record
from forerun.bench.views.note import Remark
from forerun.bench.rounding import rounding_words
from forerun.bench.views.sheet import Sheet
from forerun.bench.verdicts import Outcome

_NAMES: Final = ("class", "contender")
_SPEED: Final = ("tok/s", "× plain [95 %]", "whole", "pred.")
_GUESSES: Final = ("tok/pass", "held")
_POSITIONS: Final = ("by position",)
_FIRST: Final = ("first token ms", "first ×")
_WAITS: Final = ("wait ms", "ms/token")
_LEGEND: Final = (
    "× plain: plain's time per token ÷ this one's, above 1 is faster; whole: with the prompt's "
    "time; pred.: what theory predicts of × plain",
    "held: of all guesses; by position: of a round's first guesses, of its second ones and so on",
    "first ×: plain's time to the first token ÷ this one's",
    "times are p50/p95/p99; wait: before each token, 0 for those that come together; ms/token: "
    "mean of an answer",
)
_COLOURS: Final = {True: "bold green", False: "bold red", None: "yellow"}
_WORD_LEN: Final = len("NOT MEASURED")


def print_record(console: Console, record: Record) -> None:
    console.print(_sheet(record))
    console.print()
    for outcome in record.verdicts:
        console.print(verdict_line(outcome))


def _sheet(record: Record) -> Sheet:
    unfinished = "" if record.is_complete else " (interrupted)"
    where = f"{record.model.get('name')} on {record.machine.get('cpu')}"
    title = f"{where}{rounding_words(record.settings)}{unfinished}"
    before = [None, *(cell.workload for cell in record.cells)]
    rows = [
        [*_row(cell, is_first=cell.workload != last)]
        for last, cell in zip(before, record.cells, strict=False)
    ]
    groups = (_SPEED, _GUESSES, _POSITIONS, _WAITS, _FIRST)
    return Sheet(title, _NAMES, groups, rows, _POSITIONS, (*_LEGEND, *_notes(record)))


def _row(cell: Cell, *, is_first: bool) -> Iterator[str | Text]:
    yield cell.workload if is_first else ""
    yield cell.contender
    yield _number(cell.tokens_per_second, 1)
    yield from _to_plain(cell)
    yield _number(cell.tokens_per_pass, 2)
    yield "–" if cell.acceptance_rate is None else f"{cell.acceptance_rate:.0%}"
    yield " ".join(map(_share, cell.acceptance_by_position[:5]))
    yield _quantiles(cell.wait_ms)
    yield _quantiles(cell.answer_ms)
    yield _quantiles(cell.ttft_ms)
    yield _ratio(None if cell.contender == PLAIN else cell.ratio_ttft)


def _to_plain(cell: Cell) -> Iterator[str | Text]:
    """Plain beside itself is no measurement."""
    if cell.contender == PLAIN:
        yield from ("–", "–", "–")
    else:
        yield _ratio(cell.ratio)
        yield _number(None if cell.ratio_whole is None else cell.ratio_whole.median, 2)
        yield _number(None if cell.prediction is None else cell.prediction.predicted, 2)


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


def verdict_line(outcome: Outcome) -> Remark:
    return Remark(
        f"{outcome.requirement}: {outcome.found}",
        mark=f"{outcome.word:<{_WORD_LEN}}  ",
        mark_style=_COLOURS[outcome.passed],
    )


def _notes(record: Record) -> Iterator[str]:
    yield from _prediction_note(record)
    for cell in record.cells:
        if cell.prediction is not None and cell.prediction.reason:
            place = f"{cell.workload} × {cell.contender}"
            yield f"prediction {cell.prediction.error:+.0%} in {place}: {cell.prediction.reason}"
    about = record.contenders.items()
    precisions = [(name, one["precision"]) for name, one in about if "precision" in one]
    for names, precision in _alike(precisions):
        yield f"{names}: {precision}"
    for names, place in _alike((d["contender"], _parting(d)) for d in record.divergences):
        yield f"{place}: {names}"


def _alike(named: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """What is said of several, once, after the names of all of them."""
    names: dict[str, list[str]] = {}
    for name, text in named:
        names.setdefault(text, []).append(name)
    for text, those in names.items():
        yield ", ".join(those), text


def _parting(d: Mapping[str, Any]) -> str:
    margin = "far" if d["margin"] is None else f"margin {d['margin']:.3f}"
    return (
        f"another text than ours in {d['workload']} ({d['prompt']}) from token {d['at']} on, "
        f"{d['theirs']!r} for {d['ours']!r}, {margin}"
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
