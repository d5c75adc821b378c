"""64 streams for minutes, a third of which disconnect: no other notices, and nothing is left."""

from __future__ import annotations

import json
import os
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest

from tests.server.serving import Running, serving
from tests.server.test_operation import PLAIN, wait_until_idle

SECONDS = float(os.environ.get("FORERUN_SOAK_SECONDS", "300"))
NUM_STREAMS = 64


def read_stream(server: Running, seed: int, leaves: bool) -> str | None:
    """Return the text, or None if the reader disconnects on the way."""
    body = {
        "prompt": "abc abc hello"[: 3 + seed % 10],
        "max_tokens": 20 + seed % 60,
        "ignore_eos": True,
        "seed": seed,
        "stream": True,
    }
    text, reasons = "", []
    with server.client.stream("POST", "/v1/completions", json=body, timeout=300) as response:
        assert response.status_code == 200, response.read()
        lines = response.iter_lines()
        for num, line in enumerate(lines):
            if leaves and num > 4:
                return None
            if line.startswith("data: {"):
                chunk = json.loads(line[6:])
                assert "error" not in chunk, chunk
                text += chunk["choices"][0]["text"]
                reasons.append(chunk["choices"][0]["finish_reason"])
    assert [reason for reason in reasons if reason] == ["length"]
    return text


def resident_bytes(server: Running) -> int:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


@pytest.mark.soak
def test_a_crowd_that_comes_and_goes(tiny_path: Path) -> None:
    options = ("--kernels", "cpu", "--max-num-seqs", "16", "--no-access-log")
    with serving(tiny_path, *options) as server, ThreadPoolExecutor(NUM_STREAMS) as crowd:
        rng, until = Random(0), time.monotonic() + SECONDS
        texts: dict[int, str] = {}
        sizes = []
        while time.monotonic() < until:
            seeds = [rng.randrange(200) for _ in range(2 * NUM_STREAMS)]
            leaving = [rng.random() < 1 / 3 for _ in seeds]
            results = crowd.map(
                lambda pair: read_stream(server, *pair), zip(seeds, leaving, strict=True)
            )
            for seed, text in zip(seeds, results, strict=True):
                if text is not None:
                    assert texts.setdefault(seed, text) == text
            sizes.append(resident_bytes(server))
        wait_until_idle(server)
        assert len(texts) > 50
        half = len(sizes) // 2
        assert max(sizes[half:]) < 1.1 * max(sizes[: half + 1]), sizes


@pytest.mark.soak
def test_readers_that_never_read_are_cut_off(tiny_path: Path) -> None:
    """Their connections are closed too, although what was written to them is never read."""
    asked = {"prompt": "abc", "n": 8, "max_tokens": 60, "logprobs": 20, "ignore_eos": True}
    body = json.dumps(asked)
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    with serving(tiny_path, *PLAIN, "--request-timeout", "1") as server, ExitStack() as open_ones:
        host, port = server.url.removeprefix("http://").split(":")
        num_before = num_connections(server)
        for _ in range(8):
            deaf = open_ones.enter_context(socket.socket())
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            deaf.connect((host, int(port)))
            for _ in range(10):  # requests one after the other; no answer is read
                deaf.sendall((head + body).encode())
        while num_connections(server) < num_before + 8:
            time.sleep(0.01)
        deadline = time.monotonic() + 120
        while num_connections(server) > num_before:
            assert time.monotonic() < deadline, num_connections(server)
            time.sleep(0.5)
        assert read_stream(server, 3, False)


def num_connections(server: Running) -> int:
    return sum(
        os.readlink(link).startswith("socket:")
        for link in Path(f"/proc/{server.process.pid}/fd").iterdir()
    )


@pytest.mark.soak
def test_sigterm_under_load_loses_nobody_and_kill_9_leaves_nothing_behind(tiny_path: Path) -> None:
    with serving(tiny_path, *PLAIN) as server, ThreadPoolExecutor(NUM_STREAMS) as crowd:
        answers = [crowd.submit(read_stream, server, seed, False) for seed in range(NUM_STREAMS)]
        while server.metric("forerun:num_requests_waiting") < NUM_STREAMS - 20:
            time.sleep(0.01)
        server.terminate()
        for answer in answers:
            assert answer.result()
        assert server.process.wait(60) == 0
    with serving(tiny_path, *PLAIN) as server:
        server.process.kill()
        server.process.wait()
    with serving(tiny_path, *PLAIN) as server:
        assert read_stream(server, 3, False)
