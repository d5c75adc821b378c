"""The peer llama.cpp: a built `llama-server`, or the generic wheel xllamacpp.

Its modes are plain decoding and each kind of speculation that needs no weights of its own.
"""

from __future__ import annotations

import atexit
import importlib
import importlib.metadata
import json
import os
import re
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from typing import Any, Protocol

from llama_http import complete, complete_all  # type: ignore[import-not-found]
from worker import Answer, Handler, serve  # type: ignore[import-not-found]

PRECISION = "the GGUF's own weights, activations quantised to 8 bits, float16 cache"
TYPE = "COMMON_SPECULATIVE_TYPE_"
# Without flash attention it decodes twice as fast at long contexts, and reads prompts slower.
WITHOUT_FA = "_fa_off"
START_SECONDS = 300.0


class Build(Protocol):
    def about(self) -> Answer:
        """Return `build`, `system_info`, `versions` and `modes`."""

    def serve(self, mode: str) -> str:
        """Start a server, which has one kind of speculation for life; return its address."""


def start(setup: dict[str, Any]) -> tuple[Answer, Handler]:
    build: Build = Wheel(setup) if setup["server"] is None else Native(setup)
    addresses: dict[str, str] = {}
    about = {"precision": PRECISION, **build.about()}

    def answer(question: dict[str, Any]) -> Answer:
        mode = question["mode"]
        if mode not in addresses:
            addresses[mode] = build.serve(mode)
        if "prompts" in question:
            return dict(complete_all(addresses[mode], question, setup["slots"]))
        return dict(complete(addresses[mode], question))

    return about, answer


class Native:
    """A built `llama-server`; an `about.json` beside it describes the build.

    Its servers are in this process's group, and end with it.
    """

    def __init__(self, setup: dict[str, Any]) -> None:
        self._setup = setup
        self._program = setup["server"]

    def about(self) -> Answer:
        options = self._output("--help")
        found = re.search(r"--spec-type\s+([\w,-]+)", options)
        kinds = found[1].split(",") if found else []
        modes = ["plain", *(kind.replace("-", "_") for kind in kinds if kind.startswith("ngram"))]
        if re.search(r"--flash-attn\s+\[on", options):
            modes += [mode + WITHOUT_FA for mode in modes]
        # It prints its features before it looks for the model.
        features = re.search(
            r"system_info: (.+)", self._output("-lv", "4", "--port", "0", "-m", "-")
        )
        version = re.search(r"version: (.+)", self._output("--version"))
        built = self._how_built()
        return {
            "build": built.get("build", "own build"),
            "system_info": features[1].strip() if features else None,
            "versions": {
                "llama.cpp": version[1] if version else "unknown",
                **built.get("from", {}),
            },
            "modes": modes,
        }

    def _how_built(self) -> dict[str, Any]:
        try:
            with open(os.path.join(os.path.dirname(self._program), "about.json")) as file:
                return dict(json.load(file))
        except FileNotFoundError:
            return {}

    def _output(self, *arguments: str) -> str:
        command = [self._program, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        return done.stdout + done.stderr

    def serve(self, mode: str) -> str:
        setup, threads = self._setup, str(self._setup["threads"])
        command = [self._program, "--model", setup["model"], "--host", "127.0.0.1", "--port", "0"]
        command += ["--threads", threads, "--threads-batch", threads]
        command += ["--ctx-size", str(setup["max_len"] * setup["slots"])]  # shared among the slots
        command += ["--parallel", str(setup["slots"])]
        kind = mode.removesuffix(WITHOUT_FA)
        if kind != mode:
            command += ["--flash-attn", "off"]
        if kind != "plain":
            command += ["--spec-type", kind.replace("_", "-")]
        with tempfile.TemporaryFile() as log:
            server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            atexit.register(server.kill)  # if questions end without `close`
            return _ready_address(server, log.fileno())


def _ready_address(server: subprocess.Popen[bytes], log: int) -> str:
    """Wait until the model is loaded; return the address that the log names."""
    ends_at = time.monotonic() + START_SECONDS
    while time.monotonic() < ends_at:
        text = os.pread(log, 1 << 20, 0).decode(errors="replace")
        if server.poll() is not None:
            raise RuntimeError(f"llama-server ended: {_why(server.returncode, text)}")
        found = re.search(r"listening on (http://\S+)", text)
        if found and _is_ready(found[1]):
            return found[1]
        time.sleep(0.05)
    raise RuntimeError(f"llama-server was not ready after {START_SECONDS:.0f} s")


def _why(code: int, log: str) -> str:
    if code < 0:  # killed by a signal, which the log does not show
        return f"{signal.strsignal(-code)}, with this build on this machine"
    said = [line for line in log.splitlines() if line.strip()]
    return said[-1] if said else "without a word"


def _is_ready(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/health"):
            return True
    except urllib.error.URLError:  # 503 while it loads
        return False


class Wheel:
    """xllamacpp from the package index, which is built for no particular processor."""

    def __init__(self, setup: dict[str, Any]) -> None:
        self._setup = setup
        self._library = importlib.import_module("xllamacpp")
        self._servers: list[Any] = []  # an unreferenced server ends

    def about(self) -> Answer:
        kinds = [n for n in dir(self._library.common_speculative_type) if n.startswith(TYPE)]
        ngrams = [name.removeprefix(TYPE).lower() for name in kinds if "NGRAM" in name]
        return {
            "build": "generic wheel",
            "system_info": str(self._library.get_system_info()).strip(),
            "versions": {"xllamacpp": importlib.metadata.version("xllamacpp")},
            "modes": ["plain", *ngrams],
        }

    def serve(self, mode: str) -> str:
        params = self._library.CommonParams()
        params.model.path = self._setup["model"]
        params.n_ctx = self._setup["max_len"] * self._setup["slots"]  # shared among the slots
        params.n_parallel = self._setup["slots"]
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = self._setup["threads"]
        params.verbosity = -1
        params.port = 0  # any free one
        if mode != "plain":
            kind = getattr(self._library.common_speculative_type, TYPE + mode.upper())
            params.speculative.types = [kind]
        self._servers.append(self._library.Server(params))
        return str(self._servers[-1].listening_address)


if __name__ == "__main__":
    serve(start)
