"""`forerun bench batch`, from the outside."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from forerun.bench.batch import Pair
from forerun.cli import app
from forerun.cli.bench.batch import BatchOptions, prompts_and_room
from forerun.cli.bench.options import BenchOptions
from forerun.cli.options.engine import engine_options
from tests.tiny_model import write_tiny_model


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("models") / "long", max_len=3000)


def run(*args: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["bench", *map(str, args)])
    return result.exit_code, result.output


def test_the_command_records_every_part(path: Path, tmp_path: Path) -> None:
    record = tmp_path / "batch.json"
    code, shown = run(
        *("batch", "--model", path, "--classes", "story", "--pairs", "2", "--repeats", "2"),
        *("--max-tokens", "4", "--in-flight", "1,2", "--together", "2", "--json", record),
    )
    assert code == 0, shown
    found = json.loads(record.read_text())
    assert found["is_complete"] is True
    assert found["model"]["sha256"]
    assert len(found["together"]["rounds"]) == 2
    assert len(found["load"]["pairs"]) == 4
    assert found["load"]["same_tokens"] is True
    assert "in flight" in shown


def test_there_is_room_for_the_longest_prompt_of_every_part(path: Path) -> None:
    """--in-flight 1 needs one story, but the second of --prompts is longer."""
    prompts, room = prompts_and_room(
        engine_options(model=str(path)),
        BenchOptions(classes="story,extract", pairs=1, max_tokens=4),
        BatchOptions(parts="offline", in_flight="1", num_prompts=2),
        ["offline"],
    )
    story, extract = prompts["offline"]
    assert len(story) < len(extract)
    assert room == len(extract) + 4


def test_a_template_of_the_users_own_is_what_room_is_made_for(path: Path, tmp_path: Path) -> None:
    def room(chat_template: Path | None) -> int:
        engine = engine_options(model=str(path), chat_template=chat_template)
        return prompts_and_room(engine, BenchOptions(classes="extract"), BatchOptions(), ["load"])[
            1
        ]

    wordy = tmp_path / "wordy.jinja"
    wordy.write_text("so " * 200 + "{{ messages[0].content }}")
    assert room(wordy) > room(None) + 150


def test_an_interrupted_part_keeps_what_it_measured(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopping(*_: object) -> Iterator[Pair]:
        yield Pair(1, 9, 1.0, 1.0, same_tokens=True)
        raise KeyboardInterrupt

    monkeypatch.setattr("forerun.bench.batch.measure_load", stopping)
    record = tmp_path / "batch.json"
    code, _ = run("batch", "--model", path, "--parts", "load,together", "--json", record)
    found = json.loads(record.read_text())
    assert (code, found["is_complete"], len(found["load"]["pairs"])) == (130, False, 1)
    assert "together" not in found


@pytest.mark.parametrize(
    ("args", "part"),
    [
        ("--parts togther", "did you mean 'together'"),
        ("--parts offline", "needs --peers llamacpp"),
        ("--in-flight 1,x", "--in-flight holds 'x'"),
        ("--peers transformers", "--peers llamacpp alone"),
        ("--repeats 0", "--repeats 0 is not allowed"),
    ],
)
def test_mistakes_are_one_sentence(path: Path, args: str, part: str) -> None:
    code, shown = run("batch", "--model", path, *args.split())
    assert code == 2, shown
    assert part in shown
