"""The project's aims, held against records by tools/figures/aims.py."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gpu_figures
from forerun.bench.measure.contenders import DEFAULT
from forerun.bench.records.record import write_json
from forerun.engine import LLM
from tests.bench.fakes import Scripted, made_record

ROOT = Path(__file__).parents[2]
TOOL: dict[str, Any] = runpy.run_path(str(ROOT / "tools" / "figures" / "aims.py"))
COPYING = ("edit-code", "repeat", "extract")

Word = Callable[..., str]


@pytest.fixture
def word(llm: LLM, tmp_path: Path) -> Word:
    """Return a function that judges an aim by a made-up record, in which the default is four times
    as fast as plain and eight times as fast as the peer."""

    def judged(figure: str, num_pairs: int = 20, **aim: Any) -> str:
        record = made_record(
            llm,
            default=Scripted(DEFAULT, per_pass=4, seconds=0.01),
            peers=[Scripted("llamacpp/plain", seconds=0.02)],
            names=COPYING,
            num_pairs=num_pairs,
        )
        write_json(tmp_path / "made.json", record.as_dict())
        full = {"on": "here", "what": "speed", "record": "made.json", "figure": figure, **aim}
        return str(TOOL["judge"](full, tmp_path).word)

    return judged


@pytest.mark.parametrize(
    ("figure", "more", "reached", "missed"),
    [
        ("mean_ratio", {"kind": "copy-heavy"}, 3.9, 4.1),
        ("lowest_bound", {"num_classes": 3}, 3.9, 4.1),
        ("over_best_mode", {"classes": COPYING}, 7.9, 8.1),
        ("class_ratio", {"class": "repeat"}, 3.9, 4.1),
        ("plain_over_peer", {}, 1.9, 2.1),
        ("first_token_over_peer", {}, 0.9, 1.1),
    ],
)
def test_a_pass_waits_for_its_pairs_and_a_failure_does_not(
    word: Word, figure: str, more: dict[str, Any], reached: float, missed: float
) -> None:
    assert word(figure, at_least=reached, **more) == "PASS"
    assert word(figure, at_least=missed, **more) == "FAIL"
    assert word(figure, num_pairs=3, at_least=reached, **more) == "OPEN"
    assert word(figure, num_pairs=3, at_least=missed, **more) == "FAIL"


def test_an_aim_for_classes_that_were_not_measured_is_no_pass(word: Word) -> None:
    with pytest.raises(AssertionError, match="has 3 classes"):
        word("lowest_bound", num_classes=9, at_least=0.95)
    with pytest.raises(AssertionError, match="has no"):
        word("over_best_mode", classes=(*COPYING, "chat"), at_least=1)


def test_at_most_is_the_other_way_round(word: Word) -> None:
    assert word("num_differing", at_most=0) == "PASS"
    assert word("prediction_error", contender=DEFAULT, at_most=10) == "PASS"
    assert word("prediction_error", contender=DEFAULT, at_most=-1) == "FAIL"


@pytest.mark.parametrize(
    ("bound", "verdict"),
    [({"at_least": 1.0}, "FAIL"), ({"at_most": 2.5}, "FAIL"), ({"at_most": 3.0}, "PASS")],
)
def test_the_worst_of_several_places_counts(
    tmp_path: Path, bound: dict[str, float], verdict: str
) -> None:
    threads = {"1": {"ratio": 3.0}, "2": {"ratio": 0.5}}
    record = {"measured": "passes", "machine": {}, "is_complete": True, "threads": threads}
    write_json(tmp_path / "made.json", record)
    aim = {"record": "made.json", "figure": "threads.*.ratio", **bound}
    assert TOOL["judge"](aim, tmp_path).word == verdict


def test_a_figure_that_a_record_lacks_is_open(tmp_path: Path) -> None:
    record = {"measured": "gpu", "machine": {}, "is_complete": True, "starts": {}}
    write_json(tmp_path / "made.json", record)
    where = {"on": "ARM", "record": "made.json", "figure": "starts.cold"}
    aim = {"what": "start", "at_most": 20, **where}
    assert str(TOOL["judge"](aim, tmp_path)) == "OPEN  ARM: start ≤ 20: not in made.json"
    found = TOOL["judge"](aim | {"record": "none.json"}, tmp_path)
    assert str(found) == "OPEN  ARM: start ≤ 20: there is no none.json"
    write_json(tmp_path / "made.json", record | {"starts": None, "answers": None, "shapes": []})
    assert TOOL["judge"](aim, tmp_path).word == "OPEN"
    for figure in ("host_ms", "pass_ms"):
        more = {"figure": figure, "shape": "3b, int8", "requests": 1, "answer": "plain_s"}
        assert TOOL["judge"](aim | more, tmp_path).word == "OPEN"


def test_a_figure_that_nobody_knows_is_a_mistake(word: Word) -> None:
    with pytest.raises(KeyError, match="num_difering"):
        word("num_difering", at_most=0)


GPU = {
    "shapes": [
        {
            "shape": shape,
            "num_rows_different": 1,
            "passes": [
                {"num_requests": n, "num_tokens": t, "device_s": seconds * (n + t)}
                for n, t in ((1, 1), (1, 3), (1, 6), (16, 1), (32, 1))
            ],
        }
        for shape, seconds in (("135m", 1e-4), ("1b", 1e-3), ("3b", 2e-3))
    ],
    "answers": {"plain_s": 0.0005},
    "oracle": {"draft": {"runs": [{"depth": 2, "token_s": 8e-3, "tokens_per_round": 2.0}]}},
}


@pytest.mark.parametrize(
    ("figure", "aim", "value"),
    [
        ("pass_ms", {"shape": "1b"}, 2.0),
        ("verify_ratio", {"shape": "3b"}, 3.5),
        ("batch_share", {"shape": "3b"}, 2 / 33),
        ("host_ms", {"answer": "plain_s", "requests": 1}, 0.3),
        ("num_rows_different", {}, 3),
        ("drafted_share", {}, (8e-3 + 2 * 2e-3) / 2.0 / 8e-3),
    ],
)
def test_figures_of_a_gpu(figure: str, aim: dict[str, Any], value: float) -> None:
    assert gpu_figures.FIGURES[figure](GPU, aim) == pytest.approx(value)


def test_every_aim_of_the_project_can_be_judged(capsys: pytest.CaptureFixture[str]) -> None:
    assert TOOL["main"]() == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == (ROOT / "bench" / "aims.toml").read_text().count("[[aim]]")
    assert all(line[:4] in ("PASS", "FAIL", "OPEN") for line in lines)
    failed = any(line.startswith("FAIL") for line in lines)
    assert TOOL["main"]("--strict") == int(failed)
