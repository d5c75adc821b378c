"""A real `forerun serve` in a process of its own, on loopback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

_START_SECONDS = 120.0
MODEL = "tiny"


class Running:
    """A running server and a client for it; `log` grows with the server's stderr."""

    def __init__(self, process: subprocess.Popen[str], url: str, log: list[str]) -> None:
        self.process = process
        self.url = url
        self.log = log
        self.client = httpx.Client(base_url=url, timeout=60.0)

    def post(self, path: str, **body: Any) -> httpx.Response:
        return self.client.post(path, json=body)

    def ask(self, path: str, **body: Any) -> dict[str, Any]:
        response = self.post(path, **body)
        assert response.status_code == 200, response.text
        found: dict[str, Any] = response.json()
        return found

    def stream(self, path: str, **body: Any) -> list[str]:
        """Return the `data:` of every event."""
        with self.client.stream("POST", path, json={**body, "stream": True}) as response:
            assert response.status_code == 200, response.read()
            lines = list(response.iter_lines())
        return [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]

    def metric(self, name: str) -> float:
        """Return the metric's sum over all labels."""
        lines = self.client.get("/metrics").text.splitlines()
        found = [line for line in lines if line.split("{")[0].split(" ")[0] == name]
        return sum(float(line.rsplit(" ", 1)[1]) for line in found)

    def logged(self, start: str, seconds: float = 60.0) -> str:
        """Return the log line that begins so; wait for it, as /ready may answer earlier."""
        deadline = time.monotonic() + seconds
        while not (found := [line for line in self.log if line.startswith(start)]):
            assert time.monotonic() < deadline, self.log
            time.sleep(0.01)
        return found[0]

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def wait_for(self, name: str, value: float, seconds: float = 30.0) -> None:
        deadline = time.monotonic() + seconds
        while self.metric(name) != value:
            assert time.monotonic() < deadline, f"{name} is {self.metric(name)}, not {value}"
            time.sleep(0.02)


def start(*args: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "forerun", "serve", *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(env or {})},
    )


@contextmanager
def serving(
    model: Path, *args: str, env: Mapping[str, str] | None = None, wait: bool = True
) -> Iterator[Running]:
    """Start a server, ready unless `wait` is False, and end it afterwards."""
    name = () if "--served-model-name" in args else ("--served-model-name", MODEL)
    process = start(str(model), "--port", "0", *name, *args, env=env)
    log: list[str] = []
    reader = threading.Thread(target=_follow, args=(process, log))
    reader.start()
    try:
        assert process.stdout is not None
        first = process.stdout.readline()
        assert first.startswith("listening on "), (first, log)
        running = Running(process, first.removeprefix("listening on ").strip(), log)
        if wait:
            _wait_until_ready(running)
        yield running
        running.client.close()
    finally:
        process.kill()
        process.wait()
        reader.join()
        for pipe in (process.stdout, process.stderr):
            assert pipe is not None
            pipe.close()


def _follow(process: subprocess.Popen[str], log: list[str]) -> None:
    assert process.stderr is not None
    log.extend(line.rstrip("\n") for line in iter(process.stderr.readline, ""))


def _wait_until_ready(running: Running) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while running.client.get("/ready").status_code != 200:
        assert running.process.poll() is None, running.log
        assert time.monotonic() < deadline, running.log
        time.sleep(0.05)
