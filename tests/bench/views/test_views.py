"""A record shown as a table, a page and a figure."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from forerun.bench.records.record import Record
from forerun.bench.records.report import read_any
from forerun.bench.views.html_report import report, write_report
from forerun.bench.views.plots import save_plot
from forerun.bench.views.reports import rounds_beside, save_kernel_plot
from forerun.bench.views.tables import print_record
from forerun.engine import LLM
from forerun.errors import InvalidOption
from tests.bench.fakes import Scripted, made_record

RECORDS = Path(__file__).parents[3] / "bench" / "records"


def test_the_table_and_the_report_show_every_class(llm: LLM, tmp_path: Path) -> None:
    record = made_record(llm, peers=[Scripted("llamacpp/plain")])
    console = Console(file=StringIO(), width=200)
    print_record(console, record)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    page = report(record)
    for text in ("chat", "story", "default", "llamacpp/plain", "2.00"):
        assert text in shown
        assert text in page
    assert "free classes, geometric mean: 2.00 × plain" in shown
    assert "free classes: 2.00 × the tokens per second of llamacpp's best mode (plain)" in shown
    assert "DIFFER" not in shown
    assert "predictions: " in shown
    assert page.count("<svg") == page.count("</svg>") == 5
    assert not re.search(r"https?://|<script|src=|@import", page)
    write_report(record, tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text().strip() == page.strip()


def test_shares_that_round_to_one_are_shown_as_one(llm: LLM) -> None:
    record = made_record(llm)
    shares = [1.0, 0.997, 0.994, 0.5, 0.0]
    cells = [replace(cell, acceptance_by_position=shares) for cell in record.cells]
    console = Console(file=StringIO(), width=200)
    print_record(console, replace(record, cells=cells))
    assert " 1 1 .99 .50 .00 " in console.file.getvalue()  # type: ignore[attr-defined]
    assert "Of the rounds that made a first" in report(record)


def test_names_are_escaped_in_the_report(llm: LLM) -> None:
    record = made_record(llm)
    page = report(replace(record, model={"name": "<b>&"}))
    assert "<b>&" not in page
    assert "&lt;b&gt;&amp;" in page


def test_a_record_with_nothing_in_it_is_shown_all_the_same(llm: LLM) -> None:
    record = replace(made_record(llm), cells=[], runs=[], is_complete=False)
    assert "interrupted" in report(record)
    print_record(Console(file=StringIO()), record)


def test_the_plot(llm: LLM, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    save_plot(made_record(llm), tmp_path / "bench.svg")
    assert (tmp_path / "bench.svg").stat().st_size > 5_000
    with pytest.raises(InvalidOption, match="end it in"):
        save_plot(made_record(llm), tmp_path / "bench.gif")


def test_other_tokens_than_plains_are_said_below_the_table(llm: LLM) -> None:
    record = made_record(llm)
    cells = [replace(cell, same_tokens=0.0) for cell in record.cells]
    console = Console(file=StringIO(), width=200)
    print_record(console, replace(record, cells=cells))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "tokens DIFFER from plain decoding's in chat × default, story × default" in shown


def test_the_plot_of_kernels(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    values = json.loads((RECORDS / "kernels.json").read_text())
    save_kernel_plot(values, tmp_path / "kernels.png")
    assert (tmp_path / "kernels.png").stat().st_size > 1000
    with pytest.raises(InvalidOption, match="end it in"):
        save_kernel_plot(values, tmp_path / "kernels.txt")


def test_rounds_beside_llamacpp_are_told_with_their_spread() -> None:
    found = read_any(RECORDS / "smollm2-x86-beside-llamacpp-busy.json")
    assert not isinstance(found, Record)
    contenders = found["threads"]["2"]
    low, high = rounds_beside(contenders, "int8", "plain")
    assert low < contenders["int8"]["plain"]["ratio"] < high
    assert rounds_beside(contenders, "llama.cpp", "plain") == (1.0, 1.0)
