"""Servers in their own processes, on loopback."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from forerun.errors import ForerunError

_START_SECONDS: Final = 300.0


class NoServer(ForerunError):
    """A server ended, or timed out, before it was ready."""


@dataclass(frozen=True)
class Server:
    """`main_thread_s` is the CPU time of its main thread so far; None if not on Linux."""

    url: str
    pid: int

    @property
    def main_thread_s(self) -> float | None:
        try:
            found = Path(f"/proc/{self.pid}/task/{self.pid}/schedstat").read_text(encoding="ascii")
        except OSError:  # not on Linux
            return None
        return int(found.split()[0]) / 1e9


@contextmanager
def our_server(model: str, num_threads: int, max_num_seqs: int) -> Iterator[Server]:
    options = ["--threads", str(num_threads), "--max-num-seqs", str(max_num_seqs)]
    options += ["--no-access-log", "--sse-ping-interval", "0"]  # a ping is no first token
    command = [sys.executable, "-m", "forerun", "serve", model, *options]
    with _running(command, "/ready") as server:
        yield server


@contextmanager
def llama_server(
    program: Path, model: Path, num_threads: int, slots: int, max_len: int
) -> Iterator[Server]:
    threads = str(num_threads)
    command = [str(program), "--model", str(model), "--host", "127.0.0.1", "--threads", threads]
    command += ["--threads-batch", threads, "--parallel", str(slots)]
    command += ["--ctx-size", str(slots * max_len)]  # shared among the slots
    with _running(command, "/health") as server:
        yield server


@contextmanager
def _running(command: Sequence[str], ready_path: str) -> Iterator[Server]:
    """Run a server, ready to answer, and end it afterwards."""
    port = _free_port()
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [*command, "--port", str(port)], stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
        try:
            server = Server(f"http://127.0.0.1:{port}", process.pid)
            deadline = time.monotonic() + _START_SECONDS
            while not _answers(server.url + ready_path):
                if process.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    said = log.read().decode(errors="replace").strip().splitlines()
                    raise NoServer(f"{command[0]} is not ready: {said[-1] if said else 'silence'}")
                time.sleep(0.05)
            yield server
        finally:
            process.terminate()
            process.wait()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url):
            return True
    except (urllib.error.URLError, ConnectionError):  # 503 while it loads
        return False
