"""`forerun bench startup`, `bench parity` and `forerun proof`, from the outside."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from forerun.bench.measure.startup import Start
from forerun.bench.proof.proof import SAMPLING
from forerun.cli import app
from forerun.cli.bench.record_head import commit_of
from forerun.engine.setup import device_choice
from tests.tiny_model import write_tiny_model


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("models") / "long", max_len=1500)


def run(*args: str | Path) -> str:
    result = CliRunner().invoke(app, [str(arg) for arg in args])
    assert result.exit_code == 0, result.output
    return result.output


def test_parity(path: Path, tmp_path: Path) -> None:
    record = tmp_path / "parity.json"
    options = ("--prompts", "3", "--max-tokens", "6", "--json", record)
    assert "3 of 3 texts the same" in run("bench", "parity", "--model", path, *options)
    found = json.loads(record.read_text())
    assert (found["is_complete"], found["num_same"], found["num_tokens"]) == (True, 3, 18)
    assert (found["settings"]["kernels"], found["settings"]["against"]) == ("cpu", "reference")
    assert found["commit"] == commit_of(Path(__file__).parent)  # None outside a git checkout
    assert found["machine"]["num_cores"] >= 1


def test_passes_and_their_profile(path: Path, tmp_path: Path) -> None:
    record = tmp_path / "passes.json"
    shown = run("bench", "passes", "--model", path, "--json", record)
    assert shown.endswith(run("bench", "show", record))  # after its progress
    assert json.loads(record.read_text())["passes"]["1"]["ratio"] == 1
    shown = run("bench", "passes", "--model", path, "--profile", "--json", record)
    assert shown.endswith(run("bench", "show", record))
    assert "Python" in shown
    assert json.loads(record.read_text())["measured"] == "profile"


def test_acceptance(path: Path, tmp_path: Path) -> None:
    """Turns of a class are counted together, each turn with the turns before it as its prompt."""
    record, questions = tmp_path / "acceptance.json", tmp_path / "questions.jsonl"
    questions.write_text(
        '{"category": "writing", "turns": ["abc abc abc", "and"]}\n'
        '{"category": "stem", "turns": ["the cat the cat"]}\n'
        '{"category": "qa", "turns": ["a dog a dog"]}\n'
    )
    options = ["--model", str(path), "--questions", str(questions), "--max-tokens", "12"]
    options += ["--json", str(record)]
    speculation = '{"method": "prompt_lookup", "adaptive": false, "num_speculative_tokens": 2}'
    shown = run("bench", "acceptance", *options, "--speculative-config", speculation)
    assert shown.endswith(run("bench", "show", record))  # after its progress
    found = json.loads(record.read_text())
    cells = {(row["class"], row["temperature"]): row for row in found["rows"]}
    assert set(cells) == {(name, t) for name in ("mt_bench", "qa") for t in (0, 0.8)}
    assert cells["mt_bench", 0]["num_answers"] == 3
    for row in found["rows"]:
        assert row["num_passes"] <= row["num_tokens"] <= 12 * row["num_answers"]
        assert row["tokens_per_pass"] == row["num_tokens"] / row["num_passes"]
    greedy = [row["tokens_per_pass"] for row in found["rows"] if row["temperature"] == 0]
    assert found["mean"]["T0"] == pytest.approx(sum(greedy) / 2)
    assert max(greedy) > 1  # its guesses are accepted
    questions.write_text('{"category": "qa"}\n')
    refused = CliRunner().invoke(app, ["bench", "acceptance", *map(str, options)])
    assert "give JSON lines with" in refused.output


@pytest.mark.slow
def test_startup(path: Path, tmp_path: Path) -> None:
    record = tmp_path / "startup.json"
    options = ("--kernels", "reference", "--repeats", "2", "--max-tokens", "4", "--json", record)
    assert "torch was not imported" in run("bench", "startup", "--model", path, *options)
    found = json.loads(record.read_text())
    assert len(found["starts"]) == 2
    assert found["torch"] is False
    assert found["model"]["num_bytes"] == found["weight_bytes"] > 0


def test_startup_passes_on_what_it_takes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[str]()

    def start_once(_python: str, arguments: list[str], _clock: object) -> Start:
        asked[:] = arguments
        return Start(1.0, 2.0, 9, torch=False)

    monkeypatch.setattr("forerun.bench.measure.startup.start_once", start_once)
    packing = ("--quantization", "int8", "--activations", "int8")
    options = (*packing, "--max-model-len", "99", "--no-speculation")
    run("bench", "startup", "--model", path, "--repeats", "1", *options)
    assert "--quantization int8 --activations int8" in " ".join(asked)
    assert "--max-model-len 99" in " ".join(asked)
    assert asked[-1] == "--no-speculation"


def test_an_interrupted_startup_keeps_its_starts(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = iter([Start(1.0, 2.0, 9, torch=False)] * 3)

    def start_once(*_: object) -> Start:
        for start in starts:
            return start
        raise KeyboardInterrupt

    monkeypatch.setattr("forerun.bench.measure.startup.start_once", start_once)
    record = tmp_path / "startup.json"
    arguments = ("bench", "startup", "--model", path, "--json", record)
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 130, result.output
    found = json.loads(record.read_text())
    assert (found["is_complete"], len(found["starts"])) == (False, 2)


def test_proof(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for options in SAMPLING.values():
        if "logit_bias" in options:  # tokens that the tiny model has
            monkeypatch.setitem(options, "logit_bias", {3: 1.0})
    record = tmp_path / "proof.json"
    shown = run(
        *("proof", "--model", path, "--prompts", "2", "--tokens", "4", "--max-depth", "2"),
        *("--min-cells", "0", "--draft-layers", "1", "--record", record),
    )
    assert "0 runs differ" in shown
    found = json.loads(record.read_text())
    assert (found["is_complete"], found["num_different"]) == (True, 0)
    assert found["num_cells"] == len(found["cells"]) >= 20
    assert "every prompt with every drafter" in found["settings"]["sample"]


def test_proof_on_a_device(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_choice, "find_spec", lambda _name: None)  # no torch
    found = CliRunner().invoke(app, ["proof", "--model", str(path), "--device", "cuda"])
    assert found.exit_code == 2
    assert "device 'cuda' needs an optional extra" in found.output
