"""Records: kept through interruption, refused when foreign, judged, shown."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from forerun.bench.contenders import DEFAULT, PLAIN
from forerun.bench.gate import Side, check_rollout
from forerun.bench.html_report import report, write_report
from forerun.bench.identity import commit_of, model_identity, versions
from forerun.bench.plots import save_plot
from forerun.bench.record import SCHEMA, InvalidRecord, Record, read_record, write_record
from forerun.bench.session import Session
from forerun.bench.tables import print_record
from forerun.bench.verdicts import judge_record
from forerun.bench.workloads import WORKLOADS
from forerun.engine import LLM
from forerun.errors import InvalidOption
from tests.bench.fakes import COSTS, FACTS, Scripted, made_record, side_by_side

RECORDS = Path(__file__).parents[2] / "bench" / "records"


def test_a_record_survives_the_disk(llm: LLM, tmp_path: Path) -> None:
    path = tmp_path / "new" / "record.json"
    record = made_record(llm, path)
    found = read_record(path)
    assert found.cells == record.cells
    assert found.verdicts == record.verdicts
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
    record = Session(side, FACTS, {DEFAULT: COSTS}, path).run(llm, lambda _: None)
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
    Session(side, FACTS, {}, path).run(llm, look)
    assert seen == sorted(seen)
    assert set(seen) == {2, 4, 6, 8, 10}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("{", "cannot be read as a bench record"),
        ("[]", "has the schema None"),
        (
            '{"schema": "forerun-bench/0"}',
            "has the schema 'forerun-bench/0', not 'forerun-bench/1'",
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
        ("verdicts", "PASS"),
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


@pytest.mark.parametrize("path", sorted(RECORDS.glob("*.json")), ids=lambda path: path.stem)
def test_the_records_in_the_repository_are_sound(path: Path) -> None:
    if json.loads(path.read_text()).get("schema") == SCHEMA:
        assert read_record(path).cells


def test_a_place_that_cannot_be_written_is_told(llm: LLM, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidOption, match="choose another place"):
        write_record(made_record(llm), tmp_path / "file" / "record.json")


# ----------------------------------------------------------------------------------- the gate


def gated(baseline: Record, canary: Record, **options: Any) -> dict[tuple[str, str], bool]:
    sides = Side("old.json", baseline, PLAIN), Side("new.json", canary, DEFAULT)
    checks = check_rollout(*sides, **options)
    return {(check.workload, check.what.split()[0]): check.passed for check in checks}


def test_a_faster_canary_with_the_same_tokens_is_promoted(llm: LLM) -> None:
    record = made_record(llm)
    found = gated(record, record)
    assert len(found) == 6
    assert all(found.values())


def test_a_slower_canary_is_held_back(llm: LLM) -> None:
    record = made_record(llm, default=Scripted(DEFAULT, per_pass=2, seconds=0.0206))
    found = gated(record, record)
    assert found["chat", "same"]
    assert not found["chat", "p95"]
    assert found["chat", "tokens/s"]  # 0.97 ×
    slower = made_record(llm, default=Scripted(DEFAULT, per_pass=2, seconds=0.022))
    assert not gated(slower, slower)["chat", "tokens/s"]


def test_equal_latency_is_no_improvement(llm: LLM) -> None:
    record = made_record(llm, default=Scripted(DEFAULT))
    assert not gated(record, record)["story", "p95"]


def test_other_tokens_are_held_back(llm: LLM) -> None:
    record = made_record(llm)
    runs = [dict(run) for run in record.runs]
    last = next(run for run in reversed(runs) if run["contender"] == DEFAULT)
    last["digest"] = "other"
    found = gated(record, replace(record, runs=runs))
    assert not found[last["workload"], "same"]
    assert sum(found.values()) == 5


def test_single_waits_can_be_asked_for(llm: LLM) -> None:
    record = made_record(llm, default=Scripted(DEFAULT, per_pass=2, seconds=0.012))
    assert gated(record, record)["chat", "p95"]
    assert not gated(record, record, latency="wait")["chat", "p95"]
    with pytest.raises(InvalidOption, match="unknown latency"):
        gated(record, record, latency="mean")


@pytest.mark.parametrize(
    ("part", "key", "value", "sentence"),
    [
        ("model", "sha256", "cd", "new.json was measured with another model than old.json"),
        ("machine", "cpu", "Slide rule", "another machine than old.json: cpu is 'Slide rule'"),
        ("machine", "features", ["neon"], "features is ['neon'], not 'not recorded'"),
        ("machine", "memory_bytes", 8, "memory_bytes is 8, not 'not recorded'"),
        ("settings", "temperature", 1.0, "another setting than old.json: temperature is 1.0"),
        ("settings", "threads", 1, "threads is 1, not 'not recorded'"),
        ("settings", "kernels", "ReferenceKernels", "kernels is 'ReferenceKernels'"),
        ("settings", "quantization", None, "quantization is None, not 'not recorded'"),
        ("settings", "activations", "int8", "activations is 'int8', not None"),
    ],
)
def test_what_does_not_compare_is_refused_by_name(
    llm: LLM, part: str, key: str, value: Any, sentence: str
) -> None:
    record = made_record(llm)
    changed: dict[str, Any] = {part: {**getattr(record, part), key: value}}
    other = replace(record, **changed)
    with pytest.raises(InvalidRecord, match=re.escape(sentence)):
        gated(record, other)


def test_other_prompts_and_contenders_are_refused(llm: LLM) -> None:
    record = made_record(llm)
    with pytest.raises(InvalidRecord, match="different classes"):
        gated(record, made_record(llm, names=["chat"]))
    with pytest.raises(InvalidRecord, match="class chat has other prompts"):
        gated(record, made_record(llm, num_pairs=2))
    with pytest.raises(InvalidOption, match="did you mean 'default'"):
        Side("new.json", record, "defualt")


def test_an_interrupted_record_is_refused_on_either_side(llm: LLM) -> None:
    record = made_record(llm)
    stopped = replace(record, is_complete=False)
    with pytest.raises(InvalidRecord, match=re.escape("new.json was interrupted")):
        gated(record, stopped)
    with pytest.raises(InvalidRecord, match=re.escape("old.json was interrupted")):
        gated(stopped, record)


def test_records_that_answer_other_prompts_are_refused(llm: LLM) -> None:
    record = made_record(llm)
    fewer = replace(record, runs=[run for run in record.runs if run["pair"] != 1])
    sentence = "only old.json has an answer to prompt 1 of class chat"
    with pytest.raises(InvalidRecord, match=re.escape(sentence)):
        gated(record, fewer)
    with pytest.raises(InvalidRecord, match=re.escape("only new.json has an answer to prompt 1")):
        gated(fewer, record)
    nothing = replace(record, runs=[], cells=[], workloads={})
    with pytest.raises(InvalidRecord, match=re.escape("old.json has no answer of plain")):
        gated(nothing, nothing)


# ------------------------------------------------------------------------------- the verdicts


def test_verdicts_follow_the_cells(llm: LLM) -> None:
    def words(num_pairs: int = 20, **options: Any) -> list[str]:
        record = made_record(llm, names=WORKLOADS, num_pairs=num_pairs, **options)
        return [v.word for v in judge_record(record.cells, "toy")][:6]

    fast = Scripted(DEFAULT, per_pass=4, seconds=0.012)
    llamacpp = [Scripted("llamacpp/plain", seconds=0.02), Scripted("llamacpp/ngram", seconds=0.01)]
    assert words(default=fast, peers=llamacpp) == ["PASS"] * 6
    too_few = words(3, default=fast, peers=llamacpp)
    assert too_few == ["PASS", "FAIL", *["NOT MEASURED"] * 4]
    slow = words(3, default=Scripted(DEFAULT, seconds=0.011))
    assert slow == ["PASS", "FAIL", "FAIL", "FAIL", "FAIL", "NOT MEASURED"]


def test_qwen_has_a_promise_of_its_own(llm: LLM) -> None:
    record = made_record(llm)
    asked = [v.requirement for v in judge_record(record.cells, "qwen2.5-coder-1.5b")]
    assert sum("Qwen" in requirement for requirement in asked) == 1
    assert not any("Qwen" in v.requirement for v in record.verdicts)


@pytest.mark.parametrize(("num_pairs", "word"), [(3, "NOT MEASURED"), (20, "PASS")])
def test_no_comparison_with_llamacpp_passes_on_few_pairs(
    llm: LLM, num_pairs: int, word: str
) -> None:
    record = made_record(
        llm,
        default=Scripted(DEFAULT, per_pass=4, seconds=0.012),
        peers=[Scripted("llamacpp/plain", seconds=0.01)],
        names=["edit-code"],
        num_pairs=num_pairs,
    )
    judged = judge_record(record.cells, "qwen2.5-coder-1.5b")
    (found,) = (v for v in judged if "Qwen" in v.requirement)
    assert found.word == word
    assert f"{num_pairs} pairs" in found.found


def test_plain_alone_proves_nothing_about_speculation(llm: LLM) -> None:
    record = made_record(llm)
    alone = [cell for cell in record.cells if cell.contender == PLAIN]
    assert alone
    assert judge_record(alone, "toy")[0].word == "NOT MEASURED"
    assert judge_record(record.cells, "toy")[0].word == "PASS"


def test_a_draft_models_prediction_passes_with_enough_pairs_only(llm: LLM) -> None:
    record = made_record(llm, names=["story"])
    cells = [replace(c, contender="draft_model:3") for c in record.cells if c.contender == DEFAULT]
    (cell,) = cells
    assert cell.prediction is not None
    exact = replace(cell, prediction=replace(cell.prediction, predicted=cell.prediction.measured))
    assert judge_record([exact], "toy")[-1].word == "NOT MEASURED"
    assert judge_record([replace(exact, num_pairs=20)], "toy")[-1].word == "PASS"


# ------------------------------------------------------------------------------ presentations


def test_the_table_and_the_report_show_every_class(llm: LLM, tmp_path: Path) -> None:
    record = made_record(llm, peers=[Scripted("llamacpp/plain")])
    console = Console(file=StringIO(), width=200)
    print_record(console, record)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    page = report(record)
    for words in ("chat", "story", "default", "llamacpp/plain", "2.00"):
        assert words in shown
        assert words in page
    assert shown.count("PASS") + shown.count("FAIL") + shown.count("NOT MEASURED") == 7
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
