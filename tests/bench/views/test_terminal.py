"""Printed tables are readable: nothing is cut at 80 columns, nothing is folded in a pipe."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console, RenderableType
from typer.testing import CliRunner

from forerun.bench.measure.bootstrap import Interval
from forerun.bench.measure.contenders import PLAIN
from forerun.bench.records.record import SCHEMA, Record, read_record
from forerun.bench.records.summary import labelled
from forerun.bench.views.sheet import Note, Sheet
from forerun.cli import app

RECORDS = Path(__file__).parents[3] / "bench" / "records"
SHOWN = [
    path
    for path in sorted(RECORDS.glob("*.json"))
    if json.loads(path.read_text()).get("schema") == SCHEMA
]


@cache
def shown_record(path: Path) -> Record:
    return labelled(read_record(path))


def printed(*args: str | Path, columns: str | None = None) -> str:
    env = {"COLUMNS": columns}
    result = CliRunner().invoke(app, [str(arg) for arg in args], env=env)
    assert result.exit_code in (0, 1), result.output
    return result.stdout


def rendered(what: RenderableType, width: int) -> list[str]:
    console = Console(file=StringIO(), width=width)
    console.print(what)
    found = console.file.getvalue()  # type: ignore[attr-defined]
    return [line.rstrip() for line in found.splitlines()]


def ratios(record: Record) -> Iterator[str]:
    """Yield each figure that must stand unbroken on one line."""
    for cell in record.cells:
        if cell.contender != PLAIN:
            yield from map(interval, filter(None, (cell.ratio, cell.ratio_ttft)))
        if cell.tokens_per_second is not None:
            yield f" {cell.tokens_per_second:.1f}"
        for times in filter(None, (cell.ttft_ms, cell.wait_ms, cell.answer_ms)):
            yield "/".join(f"{time:.0f}" for time in times.values())


def interval(found: Interval) -> str:
    return f"{found.median:.2f} [{found.low:.2f}, {found.high:.2f}]"


@pytest.mark.parametrize("columns", ["80", "120", None])
@pytest.mark.parametrize("path", SHOWN, ids=lambda path: path.stem)
def test_every_figure_of_a_record_is_whole(path: Path, columns: str | None) -> None:
    record = shown_record(path)
    shown = printed("bench", "show", path, columns=columns)
    assert "…" not in shown
    for figure in ratios(record):
        assert figure in shown
    for cell in record.cells:
        assert f" {cell.contender} " in shown
    if columns is not None:
        assert max(map(len, shown.splitlines())) <= int(columns)


@pytest.mark.parametrize("path", SHOWN, ids=lambda path: path.stem)
def test_a_pipe_gets_a_line_for_each_cell(path: Path) -> None:
    record, lines = shown_record(path), printed("bench", "show", path).splitlines()
    rows = [line for line in lines if any(f" {cell.contender} " in line for cell in record.cells)]
    assert len([row for row in rows if "·" not in row]) >= len(record.cells)


FIGURES = {
    "batch-load": ["1.029 [0.986, 1.081]", "0.983 [0.979, 0.988]", "the same"],
    "batch-together-int8": ["activations int8", "0.510 [0.506, 0.515]"],
    "startup": ["median 2.09 s", "torch was not imported", "2.04"],
    "parity": ["39 of 40 texts the same", "qa-325", "0.00009", "' looking'"],
    "smollm2-passes": ["28.6", "4.18"],
    "kernels": ["memory reads at 31.9 GB/s", "Q6_K", "9.1"],
    "proof": ["2400", "40386", "7614"],
}


@pytest.mark.parametrize("columns", ["80", None])
@pytest.mark.parametrize("name", FIGURES)
def test_the_reports_of_other_benches_show_their_figures(name: str, columns: str | None) -> None:
    shown = printed("bench", "show", RECORDS / f"{name}.json", columns=columns)
    assert re.match(r"(batch|startup|parity|passes|kernels|proof)\b.* on neoverse-n1", shown)
    for figure in FIGURES[name]:
        assert figure in shown
    if columns is not None:
        assert max(map(len, shown.splitlines())) <= int(columns)


@pytest.mark.parametrize(
    "path",
    [path for path in sorted(RECORDS.glob("*.json")) if path not in SHOWN],
    ids=lambda p: p.stem,
)
def test_every_committed_record_is_shown(path: Path) -> None:
    assert len(printed("bench", "show", path).splitlines()) >= 2


def test_records_of_tools_show_their_figures() -> None:
    shown = printed("bench", "show", RECORDS / "kl-divergence-x86.json")
    assert "0.00283" in shown
    assert "96.90%" in shown
    shown = printed("bench", "show", RECORDS / "controller-simulated.json")
    (line,) = [line for line in shown.splitlines() if line.startswith("16, noisy")]
    cells = json.loads((RECORDS / "controller-simulated.json").read_text())["cells"]
    mine = [cell for cell in cells if (cell["num_slots"], cell["is_noisy"]) == (16, True)]
    assert line.split()[2:4] == [str(len(mine)), f"{min(cell['to_plain'] for cell in mine):.3f}"]


@pytest.mark.parametrize("columns", ["80", None])
def test_the_gate_cuts_nothing(columns: str | None) -> None:
    path = RECORDS / "smollm2-side-by-side.json"
    shown = printed("gate", path, path, columns=columns)
    assert "…" not in shown
    pairs = json.loads(path.read_text("utf-8"))["settings"]["pairs"]
    assert shown.count(f"{pairs} of {pairs} answers") == 9


def test_a_path_that_looks_like_markup_is_printed(tmp_path: Path) -> None:
    folder = tmp_path / "["
    folder.mkdir()
    path = folder / "b].html"  # as markup, [/b] would close a tag that was never opened
    shown = printed("bench", "show", RECORDS / "smollm2-side-by-side.json", "--html", path)
    assert f"written: {path}" in shown


# ------------------------------------------------------------------------------- their parts


def test_a_sheet_is_split_between_groups() -> None:
    sheet = Sheet("speeds", ["who"], [["a", "b"], ["c"]], [["plain", "1111", "2222", "3333"]])
    assert rendered(sheet, 23) == ["speeds", "who       a     b     c", "plain  1111  2222  3333"]
    assert rendered(sheet, 22) == [
        *("speeds", "who       a     b", "plain  1111  2222", ""),
        *("who       c", "plain  3333"),
    ]


def test_a_group_that_fits_nowhere_is_split_too() -> None:
    sheet = Sheet("", ["who"], [["a"], ["b", "c"]], [["plain", "1", "2" * 9, "3" * 9]])
    assert sheet.strips(20) == [[0, 1], [0, 2], [0, 3]]
    assert sheet.strips(28) == [[0, 1], [0, 2, 3]]


def test_a_token_that_looks_like_markup_is_shown_as_it_is() -> None:
    sheet = Sheet("[/b]", ["token"], [["[i]"]], [["[/INST]", "[b]"]])
    assert rendered(sheet, 40) == ["[/b]", "token    [i]", "[/INST]  [b]"]
    assert rendered(Note("[/INST] is a token"), 40) == ["[/INST] is a token"]


def test_a_note_hangs_below_its_mark_and_keeps_intervals_whole() -> None:
    note = Note("prompts of 512 tokens: 3.18 [1.69, 3.19] in long", mark="PASS  ")
    assert rendered(note, 44) == [
        "PASS  prompts of 512 tokens:",
        "      3.18 [1.69, 3.19] in long",
    ]
    assert rendered(note, 80) == [f"PASS  {note.text}"]
    assert Note("it says ' fight'").lines(12) == ["it says", "' fight'"]


def test_a_sheet_without_rows_is_its_legend() -> None:
    sheet = Sheet("title", ["what"], [["median"]], [], legend=["a server: 9 requests"])
    assert rendered(sheet, 80) == ["title", "· a server: 9 requests"]
