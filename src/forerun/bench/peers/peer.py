"""A peer: another library that loads the same model and answers the same prompts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from forerun.bench.measure.timed_run import TimedRun
from forerun.bench.prompts.workloads import BenchPrompt
from forerun.errors import ForerunError, InvalidOption
from forerun.option_checks import require_known

# Each peer, and the command that installs it.
PEERS: Final[Mapping[str, str]] = {
    "transformers": 'pip install "forerun[bench]" torch',
    "llamacpp": "make peers",
}


class MissingPeer(ForerunError, ImportError):
    """A peer is not installed in the Python that was to run it."""


class PeerFailed(ForerunError, RuntimeError):
    """A peer could not load the model or answer."""


class Peer:
    """A worker process that has loaded the model; `close` ends it."""

    def __init__(self, name: str, python: Path, setup: Mapping[str, Any]) -> None:
        self.name = name
        worker = Path(__file__).with_name(f"{name}_worker.py")
        try:
            self._process = subprocess.Popen(
                [str(python), str(worker)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                start_new_session=True,  # killed with its children; ^C does not reach it
            )
        except OSError as error:
            raise MissingPeer(
                f"{python} cannot be run ({error.strerror}); "
                f"give --peer-python a Python that has {name} installed."
            ) from None
        try:
            self.about = self.ask(setup)
        except BaseException:
            self.close()
            raise

    @property
    def modes(self) -> list[str]:
        return list(self.about["modes"])

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            print(json.dumps(question), file=self._process.stdin, flush=True)
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise PeerFailed(f"the peer {self.name} died; run without it, or with fewer modes.")
        reply: dict[str, Any] = json.loads(line)
        if "missing" in reply:
            raise MissingPeer(
                f"the peer {self.name} needs {reply['missing']}, which is not installed; "
                f"run: {PEERS[self.name]}"
            )
        if "error" in reply:
            raise PeerFailed(
                f"the peer {self.name} failed: {reply['error']}; mend it, or drop it from --peers."
            )
        return reply

    def close(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(BrokenPipeError):  # unread input does not matter
                if pipe is not None:
                    pipe.close()


def open_peer(
    name: str,
    model: Path,
    *,
    threads: int,
    max_len: int,
    slots: int = 1,
    python: Path | None = None,
    llama_server: Path | None = None,
    device: str = "cpu",
) -> Peer:
    """Start a peer and load the model; `python` is an interpreter that has the peer installed.

    llama.cpp is `llama_server`, or the generic wheel if that is None. A peer with a server runs up
    to `slots` concurrent requests of `max_len` tokens. `device` is "cpu" or "cuda".
    """
    require_known("peer", PEERS, name)
    if name == "llamacpp" and not model.is_file():
        raise InvalidOption("llama.cpp reads GGUF files only; give --model a GGUF file.")
    if name == "llamacpp" and device != "cpu":
        raise InvalidOption("llama.cpp is measured on the processor; give --device cpu.")
    server = None if llama_server is None else str(llama_server)
    setup = {"model": str(model), "threads": threads, "max_len": max_len, "slots": slots}
    setup["device"] = device
    setup["server"] = server if name == "llamacpp" else None
    return Peer(name, python or Path(sys.executable), setup)


@dataclass(frozen=True)
class PeerContender:
    """One mode of a peer."""

    peer: Peer
    mode: str

    @property
    def name(self) -> str:
        return f"{self.peer.name}/{self.mode}"

    @property
    def about(self) -> Mapping[str, Any]:
        return {"engine": self.peer.name, "mode": self.mode, **self.peer.about}

    def answer_all(
        self, prompts: Sequence[Sequence[int]], num_tokens: Sequence[int]
    ) -> tuple[float, list[list[int]]]:
        """Answer all prompts concurrently, with exactly `num_tokens`; return seconds and tokens."""
        reply = self.peer.ask(
            {"mode": self.mode, "prompts": list(map(list, prompts)), "num_tokens": list(num_tokens)}
        )
        return reply["seconds"], reply["tokens"]

    def answer(
        self, prompt: Sequence[int], max_tokens: int, asked: BenchPrompt | None = None
    ) -> TimedRun:
        """Answer greedily with exactly `max_tokens` tokens, or with a schema until its end."""
        question = {"mode": self.mode, "prompt": list(prompt), "num_tokens": max_tokens}
        if asked is not None and asked.json_schema is not None:
            question["json_schema"] = json.loads(asked.json_schema)
        reply = self.peer.ask(question)
        return TimedRun(
            tuple(reply["tokens"]),
            tuple((at, num) for at, num in reply["arrivals"]),
            num_guesses=reply.get("guesses", 0),
            num_accepted=reply.get("accepted", 0),
        )
