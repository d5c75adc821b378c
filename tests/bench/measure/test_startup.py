"""The time to the first token, in a process of its own."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest

from forerun.bench.measure.startup import Start, StartFailed, start_once, startup_report
from forerun.cli.start_probe import peak_bytes


def test_a_start_is_timed_and_leaves_its_note(tiny_path: Path) -> None:
    arguments = ["generate", "once upon", "--model", str(tiny_path), "--max-tokens", "4"]
    ticks = itertools.count()
    start = start_once(sys.executable, [*arguments, "--kernels", "reference"], ticks.__next__)
    assert (start.first_token_s, start.whole_s) == (1, 2)
    assert start.torch is False
    assert start.loaded_s is not None
    assert 0 < start.loaded_s < 100
    assert start.peak_bytes is None or start.peak_bytes > 1 << 20


def test_a_command_that_fails_says_why() -> None:
    with pytest.raises(StartFailed, match="--absent"):
        start_once(sys.executable, ["doctor", "--absent"], float)


def test_torch_is_seen(tmp_path: Path) -> None:
    """A module named torch is planted and imported during the start."""
    (tmp_path / "torch.py").write_text("")
    (tmp_path / "sitecustomize.py").write_text("import torch")
    note = tmp_path / "note.json"
    command = [sys.executable, "-m", "forerun.cli.start_probe", str(note), "--version"]
    path = ":".join([str(tmp_path), *sys.path])
    subprocess.run(command, check=True, env={"PYTHONPATH": path}, capture_output=True)
    assert json.loads(note.read_text())["torch"] is True


def test_the_peak_is_this_processes_own(tmp_path: Path) -> None:
    status = tmp_path / "status"
    status.write_text("Name:\tpython\nVmHWM:\t  300000 kB\nVmRSS:\t  10 kB\n")
    assert peak_bytes(status) == 300_000 * 1024
    assert peak_bytes(tmp_path / "absent") is None


@pytest.mark.parametrize(("peak", "torch"), [(300_000_000, False), (None, True)])
def test_what_is_kept_of_the_starts(peak: int | None, torch: bool) -> None:
    report = startup_report([Start(2.5, 3.5, peak, torch)] * 3, 100_000_000, seed=0)
    assert report["first_token_s"]["median"] == 2.5
    assert len(report["starts"]) == 3
    assert report["torch"] is torch
    assert report["peak_beyond_weights_bytes"] == (None if peak is None else 200_000_000)
