"""A record on the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from rich.console import Console
from rich.text import Text

from forerun.bench.measure.bootstrap import Interval, Quantiles
from forerun.bench.measure.contenders import PLAIN
from forerun.bench.measure.prediction import TOLERANCE
from forerun.bench.peers.divergence import Divergence
from forerun.bench.prompts.workloads import Kind
from forerun.bench.records.cells import Cell
from forerun.bench.records.record import Record
from forerun.bench.records.summary import (
    differing_cells,
    labelled,
    mean_ratio,
    over_best_mode,
    peer_of,
    place,
)
from forerun.bench.views.sheet import Note, Sheet, title

_NAMES: Final = ("class", "contender")
_SPEED: Final = ("tok/s", "× plain [95 %]", "whole", "pred.")
_GUESSES: Final = ("tok/pass", "accepted")
_POSITIONS: Final = ("by position",)
_FIRST: Final = ("first token ms", "first ×")
_WAITS: Final = ("wait ms", "ms/token")
_LEGEND: Final = (
    "× plain: plain's time per token ÷ this one's, above 1 is faster; whole: with the prompt's "
    "time; pred.: what theory predicts of × plain",
    "accepted: of all guesses; by position: of a round's first guesses, its second ones and so on",
    "first ×: plain's time to the first token ÷ this one's",
    "times are p50/p95/p99; wait: before each token, 0 for those that come together; ms/token: "
    "mean of an answer",
)


def print_record(console: Console, record: Record) -> None:
    console.print(_sheet(labelled(record)))
    wrong = differing_cells(record.cells)
    if wrong:
        text = f"tokens DIFFER from plain decoding's in {', '.join(wrong)}"
        console.print(Note(text, style="bold red"))


def _sheet(record: Record) -> Sheet:
    where = title("", record.model, record.machine, record.settings, is_complete=record.is_complete)
    before = [None, *(cell.workload for cell in record.cells)]
    rows = [
        [*_row(cell, is_first=cell.workload != last)]
        for last, cell in zip(before, record.cells, strict=False)
    ]
    groups = (_SPEED, _GUESSES, _POSITIONS, _WAITS, _FIRST)
    return Sheet(where, _NAMES, groups, rows, _POSITIONS, (*_LEGEND, *_notes(record)))


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
    """Yield the comparison with plain, which is empty for plain itself."""
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
    return "–" if found is None else "{p50:.0f}/{p95:.0f}/{p99:.0f}".format(**found)


def _ratio(interval: Interval | None) -> Text:
    if interval is None:
        return Text("–")
    style = "green" if interval.low > 1 else "red" if interval.high < 1 else ""
    return Text(f"{interval.median:.2f} [{interval.low:.2f}, {interval.high:.2f}]", style)


def _notes(record: Record) -> Iterator[str]:
    yield from _summary(record)
    yield from _prediction_note(record)
    for cell in record.cells:
        if cell.prediction is not None and cell.prediction.reason:
            error = f"{cell.prediction.error:+.0%}"
            yield f"prediction {error} in {place(cell)}: {cell.prediction.reason}"
    about = record.contenders.items()
    for fact in ("precision", "system_info"):
        for names, text in _alike((name, one[fact]) for name, one in about if one.get(fact)):
            yield f"{names}: {text}"
    for names, parting in _alike((d.contender, _parting(d)) for d in record.divergences):
        yield f"{parting}: {names}"


def _summary(record: Record) -> Iterator[str]:
    """Yield our default's mean over classes of a kind, against plain and peers' best modes."""
    kinds = {str(cell.kind): None for cell in record.cells}
    for kind in map(Kind, kinds):
        mean = mean_ratio(record.cells, kind)
        if mean is not None:
            yield f"{kind} classes, geometric mean: {mean:.2f} × plain"
        classes = {cell.workload for cell in record.cells if cell.kind == kind}
        for peer in dict.fromkeys(filter(None, map(peer_of, record.cells))):
            found = over_best_mode(record.cells, peer, classes)
            if found is not None:
                modes = ", ".join(found.modes)
                yield (
                    f"{kind} classes: {found.ratio:.2f} × the tokens per second of {peer}'s best "
                    f"mode ({modes}), {found.num_pairs} pairs"
                )


def _alike(named: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield each text once, with the names that it belongs to."""
    names: dict[str, list[str]] = {}
    for name, text in named:
        names.setdefault(text, []).append(name)
    for text, those in names.items():
        yield ", ".join(those), text


def _parting(d: Divergence) -> str:
    margin = "far" if d.margin is None else f"margin {d.margin:.3f}"
    return (
        f"another text than ours in {d.workload} ({d.prompt}) from token {d.at} on, "
        f"{d.theirs!r} for {d.ours!r}, {margin}"
    )


def _prediction_note(record: Record) -> Iterator[str]:
    errors = [(abs(c.prediction.error), c) for c in record.cells if c.prediction]
    if errors:
        beyond = sum(error > TOLERANCE for error, _ in errors)
        worst, cell = max(errors, key=lambda pair: pair[0])
        yield (
            f"predictions: {beyond} of {len(errors)} cells more than {TOLERANCE:.0%} off; "
            f"largest {worst:.0%}, in {place(cell)}"
        )
