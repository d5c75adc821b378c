"""`forerun bench gpu` without a GPU: the reference kernels stand in, with a clock of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from forerun.bench.gpu import answers as answers_room
from forerun.bench.gpu import numerics, starts
from forerun.bench.gpu import oracle as oracle_room
from forerun.bench.gpu.measure import measure_gpu
from forerun.bench.gpu.shapes import PASSES
from forerun.bench.gpu.synthetic import SHAPES, SyntheticCheckpoint
from forerun.bench.measure.startup import Start
from forerun.bench.prompts.named_prompts import NamedPrompt
from forerun.bench.records.report import has_other_tokens
from forerun.bench.views.reports import report_sheet
from forerun.cli import app
from forerun.engine import LLM
from forerun.kernels import ReferenceKernels
from forerun.models.llama import LlamaModel
from tests.models_llama.tiny import tiny_config

pytestmark = pytest.mark.slow


class StandIn(ReferenceKernels):
    dtype = "torch.float32"
    device_name = "a stand-in"
    weight_size = 2

    def read_speed(self) -> float:
        return 1e9

    def kernel_times(self, work: Callable[[], object]) -> dict[str, dict[str, float]]:
        work()
        return {"a_kernel": {"count": 3, "seconds": 0.25}}

    @contextmanager
    def timed(self, num_replays: int) -> Iterator[list[float]]:
        yield [1e-3 / num_replays]


class Nudged(StandIn):
    """Kernels whose results differ in the last bit for requests that are not alone."""

    def linear(self, x: Any, matrix: Any) -> Any:
        y = super().linear(x, matrix)
        return np.nextafter(y, np.float32(np.inf)) if len(x) > 1 else y


@pytest.fixture
def tiny_shape(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(numerics, "PLACES", (1, 20))
    monkeypatch.setitem(SHAPES, "3b", tiny_config(tie_embeddings=False))
    return "3b"


def quiet(_what: str) -> None:
    pass


def measured(kernels: StandIn, shape: str, load: Any = None) -> dict[str, Any]:
    kernel_set: Any = kernels
    found = measure_gpu(kernel_set, kernel_set, [shape], load, ["generate"], quiet)
    return {"measured": "gpu", "machine": {"cpu": "x", "num_cores": 1}, **found}


def test_passes_are_held_against_the_bandwidth(tiny_shape: str) -> None:
    report = measured(StandIn(), tiny_shape)
    shape, packed = report["shapes"]
    assert [(p["num_requests"], p["num_tokens"]) for p in shape["passes"]] == list(PASSES)
    expected = 2 * SyntheticCheckpoint(SHAPES[tiny_shape]).num_read / 1e9
    assert shape["floor_s"] == packed["floor_s"] == expected
    assert shape["passes"][0]["share_of_floor"] == pytest.approx(expected / 5e-5)
    assert report["oracle"]["oracle"]["num_different"] == 0
    assert 2.5 < report["oracle"]["oracle"]["tokens_per_round"] < 5
    rows = report_sheet(report).rows
    assert len(rows) == 2 * (len(PASSES) + 1)
    assert report["numerics"]["errors"] == [0, 0]
    shown = " ".join(report_sheet(report).legend)
    assert "bits: 0 different of 78 rows alone and in a batch" in shown
    assert "numerics: logits are off by 0 of their length at most" in shown
    assert "depth 5, a round" in shown
    assert "0 different" in shown
    assert rows[-1][:3] == ["3b, int8", "a_kernel × 3", "250.000"]


def test_a_draft_model_runs_for_the_oracle(
    tiny_shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oracle_room, "_NUM_REPEATS", 1)
    model = LlamaModel.load(SyntheticCheckpoint(SHAPES[tiny_shape]), StandIn())
    found = oracle_room.measure_oracle({tiny_shape: model}, tiny_shape, tiny_shape)
    runs = found["draft"]["runs"]
    assert [run["depth"] for run in runs] == list(oracle_room.DRAFTED_DEPTHS)
    assert all(run["num_different"] == 0 for run in runs)
    assert all(1 < run["tokens_per_round"] <= 1 + run["depth"] for run in runs)


def test_a_model_counts_and_a_spoiled_one_errs_so_often(
    tiny_shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, draft = (
        LlamaModel.load(SyntheticCheckpoint(SHAPES[tiny_shape], spoiled), StandIn())
        for spoiled in (0.0, 0.5)
    )
    monkeypatch.setattr(oracle_room, "DRAFTED_DEPTHS", (1,))
    found = oracle_room.measure_oracle({"target": target, "draft": draft}, "target", "draft")
    (run,) = found["draft"]["runs"]
    assert run["num_different"] == 0
    # of 40 or more ids, each is spoiled with probability 1/2: sigma is below 0.1
    assert 1.2 < run["tokens_per_round"] < 1.8


def test_bits_that_a_batch_changes_are_counted(tiny_shape: str) -> None:
    report = measured(Nudged(), tiny_shape)
    assert report["shapes"][0]["num_rows_different"] > 0
    assert report["shapes"][1]["num_rows_different"] > 0
    assert has_other_tokens(report)
    assert "bits: 0 different" not in " ".join(report_sheet(report).legend)
    assert not has_other_tokens(measured(StandIn(), tiny_shape))


def test_answers_are_timed_and_compared(
    plain: LLM, tiny_shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    smaller = {"_NUM_TIMED": 3, "_NUM_REPEATS": 1, "_NUM_COMPARED": 40, "_QUESTION": "a word"}
    for name, value in smaller.items():
        monkeypatch.setattr(answers_room, name, value)
    monkeypatch.setattr(answers_room, "_COPIED", "abc abc abc")
    prompts = [NamedPrompt(text, "", "", text) for text in ("abc.", "the sea")]
    monkeypatch.setattr(answers_room, "named_prompts", lambda _num: prompts)
    monkeypatch.setattr("forerun.bench.proof.proof.SAMPLING", {"T=0": {"temperature": 0}})
    folders = list[str]()

    def start_once(*asked: Any) -> Start:
        folders.append(asked[-1]["TRITON_CACHE_DIR"])
        return Start(9.0 / len(folders), 10.0, None, torch=True, loaded_s=2.0 / len(folders))

    monkeypatch.setattr(starts, "start_once", start_once)
    report = measured(StandIn(), tiny_shape, lambda: plain)
    found, shown = report["answers"], " ".join(report_sheet(report).legend)
    assert len(set(folders)) == 1
    assert not Path(folders[0]).exists()
    assert "9.0 s from the command to the first token without compiled kernels, 4.5 s" in shown
    assert "with the weights in memory: 7.0 and 3.5 s" in shown
    assert "answers: 0 different of 40 with speculation" in shown
    assert (found["num_runs"], found["num_different"]) == (40, 0)
    assert found["first_token_s"] >= found["load_s"]


@pytest.mark.parametrize("part", ["answers", "oracle", "draft", "numerics"])
def test_every_check_counts(part: str) -> None:
    good, bad = {"num_different": 0}, {"num_different": 1}
    report: dict[str, Any] = {
        "measured": "gpu",
        "shapes": [],
        "answers": bad if part == "answers" else good,
        "oracle": {
            "oracle": bad if part == "oracle" else good,
            "draft": {"runs": [good, bad if part == "draft" else good]},
        },
        "numerics": {"is_near": part != "numerics"},
    }
    assert has_other_tokens(report)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--device", "cpu"), "drop --device and --kernels"),
        (("--kernels", "cpu"), "drop --device and --kernels"),
        (("--threads", "1"), "the cuda kernels do not take threads 1"),
    ],
)
def test_the_processor_is_no_gpu(options: tuple[str, ...], said: str) -> None:
    result = CliRunner().invoke(app, ["bench", "gpu", *options])
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())


def test_other_bits_are_an_exit_code(tiny_shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "forerun.engine.setup.kernel_choice.choose_kernels", lambda _config: Nudged()
    )
    monkeypatch.setattr("forerun.cli.bench.gpu.version", lambda _name: "1")
    monkeypatch.setattr("forerun.cli.bench.gpu.kernel_settings", lambda _config: {})
    command = ["bench", "gpu", "--shapes", tiny_shape, "--synthetic-only"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 1
    assert "DIFFERENT of 78 rows" in " ".join(result.output.split())
