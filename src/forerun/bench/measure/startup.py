"""From the command to the first token, in a process that knows nothing yet."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from forerun.bench.measure.bootstrap import median_interval
from forerun.bench.views.sheet import Sheet
from forerun.bench.measure.timed_run import Clock
from forerun.bench.verdicts import Outcome
from forerun.errors import ForerunError

FIRST_TOKEN_WITHIN: Final = 3.0  # seconds
BEYOND_WEIGHTS: Final = 250e6  # bytes


class StartFailed(ForerunError, RuntimeError):
    """The command that was to be timed did not answer."""


@dataclass(frozen=True)
class Start:
    """`peak_bytes` counts the mapped weight file, too; None where the system does not tell."""

    first_token_s: float
    whole_s: float
    peak_bytes: int | None
    torch: bool


@dataclass(frozen=True)
class StartReport:
    starts: Sequence[Start]
    weight_bytes: int
    seed: int

    @property
    def beyond_weights(self) -> int | None:
        """The most memory of any start, less the weights."""
        peaks = [start.peak_bytes for start in self.starts if start.peak_bytes is not None]
        return max(peaks) - self.weight_bytes if peaks else None

    def as_dict(self) -> dict[str, Any]:
        interval = median_interval([start.first_token_s for start in self.starts], self.seed)
        return {
            "first_token_s": None if interval is None else asdict(interval),
            "weight_bytes": self.weight_bytes,
            "peak_beyond_weights_bytes": self.beyond_weights,
            "torch": any(start.torch for start in self.starts),
            "starts": [asdict(start) for start in self.starts],
        }

    def verdicts(self) -> list[Outcome]:
        seconds = median(start.first_token_s for start in self.starts)
        beyond = self.beyond_weights
        torch = any(start.torch for start in self.starts)
        return [
            Outcome(
                f"first token within {FIRST_TOKEN_WITHIN:g} s of the command",
                f"median {seconds:.2f} s of {len(self.starts)}",
                seconds < FIRST_TOKEN_WITHIN,
            ),
            Outcome(
                f"peak memory under {BEYOND_WEIGHTS / 1e6:.0f} MB beyond the weight file",
                "not told by this system" if beyond is None else f"{beyond / 1e6:.0f} MB",
                None if beyond is None else beyond < BEYOND_WEIGHTS,
            ),
            Outcome("torch is never imported", "imported" if torch else "absent", not torch),
        ]


def start_once(python: str, arguments: Sequence[str], clock: Clock) -> Start:
    """Run `forerun` with these arguments in a fresh process, and time its first byte of text."""
    with tempfile.TemporaryDirectory() as folder:
        note, complaints = Path(folder, "note.json"), Path(folder, "stderr")
        command = [python, "-m", "forerun.cli.start_probe", str(note), *arguments]
        with complaints.open("wb") as stderr:
            began = clock()
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, bufsize=0)
            assert process.stdout is not None
            with process, process.stdout:
                first = process.stdout.read(1)
                first_token_s = clock() - began
                while process.stdout.read(1 << 16):
                    pass
        if process.returncode != 0 or not first:
            raise StartFailed(f"the command failed: {complaints.read_text().strip()[-500:]}")
        found = json.loads(note.read_text())
        return Start(first_token_s, clock() - began, found["peak_bytes"], found["torch"])


def start_sheet(report: StartReport) -> Sheet:
    rows = [
        [str(number), f"{start.first_token_s:.2f}", f"{start.whole_s:.2f}"]
        + [_megabytes(start.peak_bytes, less) for less in (0, report.weight_bytes)]
        for number, start in enumerate(report.starts, start=1)
    ]
    headings = ["start", "first token s", "whole s", "peak MB", "beyond weights MB"]
    return Sheet("from the command to the first token", [], [headings], rows)


def _megabytes(num_bytes: int | None, less: int) -> str:
    return "–" if num_bytes is None else f"{(num_bytes - less) / 1e6:.0f}"
