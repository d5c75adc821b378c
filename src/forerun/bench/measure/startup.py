"""The time from the command to the first token, in a fresh process."""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from forerun.bench.measure.bootstrap import interval_record
from forerun.bench.measure.timed_run import Clock
from forerun.errors import ForerunError


class StartFailed(ForerunError, RuntimeError):
    """The timed command failed."""


@dataclass(frozen=True)
class Start:
    """One start. `peak_bytes` includes the mapped weight file; None if the system does not tell.
    `cpu_s` is of all threads, for the whole answer; `loaded_s` is until the weights are loaded."""

    first_token_s: float
    whole_s: float
    peak_bytes: int | None
    torch: bool
    cpu_s: float = 0.0
    loaded_s: float | None = None


def startup_report(starts: Sequence[Start], weight_bytes: int, seed: int) -> dict[str, Any]:
    """Return the report; `peak_beyond_weights_bytes` is the largest peak less the weights."""
    peaks = [start.peak_bytes for start in starts if start.peak_bytes is not None]
    return {
        "first_token_s": interval_record([start.first_token_s for start in starts], seed),
        "weight_bytes": weight_bytes,
        "peak_beyond_weights_bytes": max(peaks) - weight_bytes if peaks else None,
        "torch": any(start.torch for start in starts),
        "starts": [asdict(start) for start in starts],
    }


def start_once(
    python: str,
    arguments: Sequence[str],
    clock: Clock,
    environment: Mapping[str, str] | None = None,
) -> Start:
    """Run `forerun` with these arguments in a fresh process, and time its first byte of text."""
    with tempfile.TemporaryDirectory() as folder:
        note, complaints = Path(folder, "note.json"), Path(folder, "stderr")
        command = [python, "-m", "forerun.cli.start_probe", str(note), *arguments]
        with complaints.open("wb") as stderr:
            began, began_at = clock(), time.perf_counter()
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=stderr, bufsize=0, env=environment
            )
            assert process.stdout is not None
            with process, process.stdout:
                first = process.stdout.read(1)
                first_token_s = clock() - began
                while process.stdout.read(1 << 16):
                    pass
        if process.returncode != 0 or not first:
            told = complaints.read_text().strip()[-500:].removeprefix("forerun: ")
            raise StartFailed(f"the command failed: {told}")
        found = json.loads(note.read_text())
        loaded_s = None if found["loaded_at"] is None else found["loaded_at"] - began_at
        whole_s, cpu_s = clock() - began, found["cpu_s"]
        return Start(first_token_s, whole_s, found["peak_bytes"], found["torch"], cpu_s, loaded_s)
