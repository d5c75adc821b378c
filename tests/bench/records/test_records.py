"""Records survive an interruption, and are refused if they are foreign or damaged."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from forerun.bench.measure.contenders import DEFAULT, PLAIN
from forerun.bench.prompts.workloads import Kind
from forerun.bench.records.record import InvalidRecord, Record, read_record, write_json
from forerun.bench.records.report import has_other_tokens, read_any
from forerun.bench.records.summary import differing_cells, mean_ratio, over_best_mode
from forerun.bench.session import Session
from forerun.cli.bench.record_head import commit_of, model_identity, versions
from forerun.engine import LLM
from forerun.errors import InvalidOption
from tests.bench.fakes import COSTS, HEAD, Scripted, made_record, side_by_side

RECORDS = Path(__file__).parents[3] / "bench" / "records"
BY_TOOLS = ("controller-simulated.json", "openai-suite.json")  # written by tools, not by a bench
OURS = [path for path in sorted(RECORDS.glob("*.json")) if path.name not in BY_TOOLS]


def test_a_record_survives_the_disk(llm: LLM, tmp_path: Path) -> None:
    path = tmp_path / "new" / "record.json"
    record = made_record(llm, path)
    found = read_record(path)
    assert found.cells == record.cells
    assert found.is_complete
    assert len(found.runs) == 12
    assert json.loads(path.read_text())["schema"] == "forerun-bench/1"
    assert list(path.parent.iterdir()) == [path]  # no half-written file is left


@pytest.mark.parametrize(("num_answers", "num_kept"), [(1, 0), (2, 2), (4, 6)])
def test_an_interrupted_bench_keeps_what_it_measured(
    llm: LLM, tmp_path: Path, num_answers: int, num_kept: int
) -> None:
    path = tmp_path / "record.json"
    plain, ours = Scripted(PLAIN), Scripted(DEFAULT, stop_after=num_answers)
    side = side_by_side(llm, plain, ours)
    record = Session(side, HEAD, {DEFAULT: COSTS}, path).run(llm, lambda _: None)
    assert not record.is_complete
    found = read_record(path)
    assert not found.is_complete
    assert num_kept <= len(found.runs) <= num_kept + 1
    assert len(found.runs) == len(record.runs)


def test_the_file_is_whole_after_every_pair(llm: LLM, tmp_path: Path) -> None:
    path, seen = tmp_path / "record.json", list[int]()

    def look(_: str) -> None:
        if path.exists():
            seen.append(len(read_record(path).runs))

    side = side_by_side(llm, Scripted(PLAIN), Scripted(DEFAULT))
    Session(side, HEAD, {}, path).run(llm, look)
    assert seen == sorted(seen)
    assert set(seen) == {2, 4, 6, 8, 10}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("{", "cannot be read as a bench record"),
        ("[]", "its schema is None"),
        (
            '{"schema": "forerun-bench/0"}',
            "its schema is 'forerun-bench/0', not 'forerun-bench/1'",
        ),
        ('{"schema": "forerun-bench/1"}', "is damaged"),
        ("[" * 200_000, "cannot be read as a bench record"),
        ("1" * 5000, "cannot be read as a bench record"),
    ],
)
def test_what_is_no_record_is_refused(tmp_path: Path, content: str, sentence: str) -> None:
    path = tmp_path / "record.json"
    path.write_text(content)
    with pytest.raises(InvalidRecord, match=re.escape(sentence)):
        read_record(path)
    with pytest.raises(InvalidRecord, match="cannot be read"):
        read_record(tmp_path / "absent.json")


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("machine", None),
        ("cells", ["x"]),
        ("cells.0.answer_ms", {}),
        ("cells.1.ratio", {"median": "fast"}),
        ("cells.1.prediction", {}),
        ("workloads", []),
        ("workloads.chat", {}),
        ("contenders", {"plain": 1}),
        ("runs", [1]),
        ("runs.0.digest", None),
        ("divergences", [{}]),
        ("is_complete", "yes"),
    ],
)
def test_a_record_with_wrong_types_is_refused(
    llm: LLM, tmp_path: Path, place: str, value: Any
) -> None:
    path = tmp_path / "record.json"
    made_record(llm, path)
    values = json.loads(path.read_text())
    *outer, last = place.split(".")
    inside = values
    for name in outer:
        inside = inside[int(name) if name.isdecimal() else name]
    inside[last] = value
    path.write_text(json.dumps(values))
    with pytest.raises(InvalidRecord, match=rf"is damaged: {place}[\w.]* is missing or wrong"):
        read_record(path)


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.stem)
def test_the_records_in_the_repository_are_sound(path: Path) -> None:
    found = read_any(path)
    assert not isinstance(found, Record) or found.cells


def test_a_place_that_cannot_be_written_is_told(llm: LLM, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidOption, match="choose another place"):
        write_json(tmp_path / "file" / "record.json", made_record(llm).as_dict())


@pytest.mark.parametrize(
    ("name", "is_other"), [("parity", True), ("batch-load", False), ("proof", False)]
)
def test_other_tokens_are_seen_in_every_bench_that_compares_them(name: str, is_other: bool) -> None:
    report = read_any(RECORDS / f"{name}.json")
    assert not isinstance(report, Record)
    assert has_other_tokens(report) is is_other
    planted = {"load": {"same_tokens": False}, "num_different": 1}
    assert has_other_tokens({**report, **planted})


# ------------------------------------------------------------------------------ what they say


def test_a_record_is_summed_up_over_classes_and_peers(llm: LLM) -> None:
    peers = [Scripted("llamacpp/plain", seconds=0.02), Scripted("llamacpp/ngram", seconds=0.01)]
    fast = Scripted(DEFAULT, per_pass=4, seconds=0.02)
    cells = made_record(llm, default=fast, peers=peers, names=["repeat", "chat"]).cells
    assert mean_ratio(cells, Kind.COPY) == pytest.approx(2)
    assert mean_ratio(cells, Kind.LONG) is None
    found = over_best_mode(cells, "llamacpp", ["repeat"])
    assert found is not None
    assert (found.modes, found.num_pairs) == (("ngram",), 3)
    assert found.ratio == pytest.approx(2)
    assert over_best_mode(cells, "transformers", ["repeat"]) is None
    assert differing_cells(cells) == []


def test_other_tokens_than_plains_are_named_and_peers_may_differ(llm: LLM) -> None:
    cells = made_record(llm, peers=[Scripted("llamacpp/plain")], names=["chat"]).cells
    wrong = [replace(cell, same_tokens=0.5) for cell in cells]
    assert differing_cells(wrong) == ["chat × default"]


def test_a_model_is_known_by_its_bytes(tmp_path: Path, tiny_path: Path) -> None:
    file = tmp_path / "toy.gguf"
    file.write_bytes(b"weights")
    found = model_identity("toy", file)
    assert (found["num_bytes"], found["file"]) == (7, "toy.gguf")
    file.write_bytes(b"Weights")
    assert model_identity("toy", file)["sha256"] != found["sha256"]
    assert model_identity("tiny", tiny_path)["num_bytes"] > 1000


def test_versions_and_commit(tmp_path: Path) -> None:
    assert {"forerun", "python", "numpy", "torch"} <= set(versions({"torch": "2"}))
    assert commit_of(tmp_path) is None
