"""Signals to the real command: what it wrote is whole, and the exit code says why it ended."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest

from tests.tiny_model import write_tiny_model

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX"),
    pytest.mark.usefixtures("interruptible"),
]
SIGNALS = pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["SIGINT", "SIGTERM"]
)
ENDLESS = ("--max-tokens", "16000", "--ignore-eos", "--trace")
PATIENCE_S = 120.0
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(scope="module")
def talker(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model with a context so long that it generates until it is stopped."""
    folder = tmp_path_factory.mktemp("models") / "talker"
    return str(write_tiny_model(folder, max_len=1 << 14))


@pytest.fixture
def start() -> Iterator[Start]:
    begun: list[subprocess.Popen[str]] = []

    def run(*args: str, python: tuple[str, ...] = (), shell: str = "") -> subprocess.Popen[str]:
        command = [sys.executable, *python, "-m", "forerun", *args]
        if shell:
            command = ["/bin/sh", "-c", f'{shell}; exec "$@"', "sh", *command]
        pipe = subprocess.PIPE
        begun.append(subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True))
        return begun[-1]

    yield run
    for process in begun:
        process.kill()
        process.communicate()


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out, err


def wait_for_line(stream: IO[str] | None, what: str = "") -> str:
    assert stream is not None
    for line in stream:
        if what in line:
            return line
    raise AssertionError(f"it ended before it said {what!r}")


def assert_silent(err: str) -> None:
    assert "Traceback" not in err, err
    assert "Exception" not in err, err
    assert len(err.split("\n")) <= 2, err


@pytest.mark.slow
@SIGNALS
def test_generate_ends_between_two_lines(
    start: Start, talker: str, number: signal.Signals, code: int
) -> None:
    process = start("generate", "-m", talker, "abcabc", *ENDLESS)
    lines = wait_for_line(process.stdout) + wait_for_line(process.stdout)
    process.send_signal(number)
    returncode, out, err = ended(process)
    assert returncode == code, err
    assert_silent(err)
    assert (lines + out).endswith("\n")


def test_a_signal_ends_what_a_parent_made_deaf_to_interrupts(start: Start, talker: str) -> None:
    """A script's background jobs ignore SIGINT; SIGTERM must still end them."""
    process = start("generate", "-m", talker, "abcabc", *ENDLESS, shell='trap "" INT')
    wait_for_line(process.stdout)
    process.send_signal(signal.SIGINT)
    for _ in range(50):
        wait_for_line(process.stdout)
    process.send_signal(signal.SIGTERM)
    returncode, _out, err = ended(process)
    assert returncode == 143, err
    assert_silent(err)


@SIGNALS
def test_the_command_ends_in_silence_while_it_is_imported(
    start: Start, number: signal.Signals, code: int
) -> None:
    process = start("doctor", python=("-X", "importtime"))
    wait_for_line(process.stderr, "typer.")
    process.send_signal(number)
    returncode, _out, err = ended(process)
    assert returncode == code, err
    assert "Traceback" not in err


@pytest.mark.slow
@SIGNALS
def test_a_bench_keeps_its_record(
    start: Start, tiny_path: Path, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    record = tmp_path / "record.json"
    process = start(
        "bench", "speculation", "-m", str(tiny_path), "--pairs", "200", "--max-tokens", "8",
        "--classes", "repeat", "--prompt-tokens", "40", "--methods", "suffix", "--depths", "2",
        "--json", str(record),
    )  # fmt: skip
    until = time.monotonic() + PATIENCE_S
    while not record.exists() and process.poll() is None and time.monotonic() < until:
        time.sleep(0.01)
    process.send_signal(number)
    returncode, _out, err = ended(process)
    assert returncode == code, err
    assert "Traceback" not in err
    found = json.loads(record.read_text())
    assert found["runs"]
    assert not found["is_complete"]
    shown = start("bench", "show", str(record))
    assert ended(shown)[0] == 0
