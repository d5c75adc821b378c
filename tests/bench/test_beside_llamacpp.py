"""What the comparison with llama-bench refuses: one sentence, exit code 2, before it measures."""

from __future__ import annotations

from pathlib import Path

import pytest

import beside_llamacpp
from beside_llamacpp import Asked
from forerun.errors import InvalidOption


def test_without_a_peer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PEERS", str(tmp_path))
    assert beside_llamacpp.main(str(tmp_path / "record.json")) == 2
    assert "run `make peers`" in capsys.readouterr().err


@pytest.mark.parametrize("count", ["0", "many", "100000", "-1"])
def test_threads_that_there_are_no_cores_for(
    count: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "llama-bench").touch()
    monkeypatch.setenv("PEERS", str(tmp_path))
    monkeypatch.setenv("THREADS", f"1 {count}")
    assert beside_llamacpp.main(str(tmp_path / "record.json")) == 2
    assert f"THREADS has {count}; give counts from 1" in capsys.readouterr().err


def test_by_default_there_are_no_more_threads_than_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("THREADS", raising=False)
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: {0, 3})
    assert Asked.of({}).threads == [1, 2]
    assert Asked.of({"THREADS": "2 1 2"}).threads == [2, 1], "each once"


@pytest.mark.parametrize(
    ("name", "given", "least"),
    [("ROUNDS", "x", 1), ("ROUNDS", "0", 1), ("TOKENS", "0", 1), ("BUSY", "-1", 0)],
)
def test_counts_that_are_none(name: str, given: str, least: int) -> None:
    sentence = f"{name} has {given}; give a whole number from {least}"
    with pytest.raises(InvalidOption, match=sentence):
        Asked.of({name: given})


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        ("echo no such file >&2; exit 1", "llama-bench failed (no such file)"),
        ("echo hello", "printed no JSON"),
    ],
)
def test_a_peer_that_fails(
    script: str,
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    program = tmp_path / "llama-bench"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(
        beside_llamacpp,
        "compare",
        lambda _record: beside_llamacpp.peer_speeds(program, tmp_path, 1, Asked.of({})),
    )
    assert beside_llamacpp.main(str(tmp_path / "record.json")) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert sentence in line
    assert line.endswith("run `make peers` again.")
