"""The tables of the docs come from the records, and name their machines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import aims
import pages
import tables

MACHINES: Final = {
    "Intel(R) Xeon(R) Processor @ 2.50GHz": "two-core Xeon",
    "Intel(R) Xeon(R) Processor": "newer Xeon",
    "neoverse-n1": "ARM",
}


@pytest.mark.parametrize("page", pages.PAGES, ids=lambda page: page.name)
def test_the_committed_page_has_what_the_records_have(page: Path) -> None:
    assert pages.written(page) == page.read_text(encoding="utf-8"), "run: make figures"


def test_a_table_that_nobody_knows_is_a_mistake(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- figures: clases -->\n<!-- end of figures -->\n", encoding="utf-8")
    with pytest.raises(KeyError, match="clases"):
        pages.written(page)


def test_a_table_is_written_between_its_marks_and_nothing_else_is(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    text = "before\n<!-- figures: {} -->\nold\n<!-- end of figures -->\nbehind\n"
    page.write_text(text.format("proofs") + text.format("passes"), encoding="utf-8")
    written = pages.written(page)
    assert "old" not in written
    assert (written.count("before"), written.count("behind")) == (2, 2)
    assert written.index("| `proof.json` |") < written.index("| one token, ms |")
    page.write_text(written, encoding="utf-8")
    assert pages.written(page) == written


def _headings() -> Iterator[tuple[str, str]]:
    yield from tables.CLASSES.items()
    yield from tables.BESIDE_LLAMACPP.items()
    yield from tables.PASSES.items()
    yield from tables.PREDICTIONS.items()


@pytest.mark.parametrize(("heading", "name"), list(_headings()))
def test_a_heading_names_the_model_and_the_machine_of_its_record(heading: str, name: str) -> None:
    record = json.loads((aims.BENCH / "records" / name).read_text(encoding="utf-8"))
    model = "SmolLM2" if "smollm2" in record["model"]["name"] else "Qwen 1.5B"
    assert heading.startswith(model)
    assert heading.split(", ")[1] == MACHINES[record["machine"]["cpu"]]


def test_an_aim_names_the_machine_of_its_record() -> None:
    for verdict in aims.verdicts_on_all():
        if verdict.is_measured and verdict.aim["on"] != "H200":
            path = aims.BENCH / "records" / verdict.aim["record"]
            machine = json.loads(path.read_text(encoding="utf-8"))["machine"]
            assert verdict.aim["on"] == MACHINES[machine["cpu"]], verdict
