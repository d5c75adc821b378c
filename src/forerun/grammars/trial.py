"""Where grammars of callers whom nobody knows are tried before they are used."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from threading import Lock, Timer
from typing import Any, Final
from weakref import finalize

_SCRIPT: Final = Path(__file__).with_name("trying.py")
_SECONDS: Final = 2  # of a processor
_PATIENCE: Final = 10.0  # seconds, however busy the machine is
_MEMORY: Final = 1 << 30  # bytes
TOO_LONG: Final = "it takes too long"
TOO_MUCH: Final = "it is too much"


class Trial:
    """A process of its own compiles a grammar and follows it for some steps. Hostile ones make
    llguidance overflow its stack, take memory without end or compute for minutes: then that process
    is ended, and the next one begins anew. It begins when it is first asked.

    `vocabulary` is told to it, and llguidance's `limits`.
    """

    def __init__(self, vocabulary: Mapping[str, Any], limits: Mapping[str, Any]) -> None:
        bounds = {"seconds": _SECONDS, "memory": _MEMORY}
        self._opening = json.dumps({**vocabulary, "limits": limits, **bounds})
        self._lock = Lock()  # one grammar at a time
        self._process: subprocess.Popen[str] | None = None

    def complaint(self, text: str, *, is_looked_at: bool = False) -> str | None:
        """Why a grammar cannot be used; None: it can. One that `is_looked_at` is compiled alone."""
        with self._lock:
            process = self._process = self._process or self._begun()
            patience = Timer(_PATIENCE, process.kill)
            patience.start()
            line = _answer(process, {"text": text, "walks": not is_looked_at})
            patience.cancel()
            if line:
                found: str | None = json.loads(line)
                return TOO_MUCH if found and found.startswith("panic") else found
            self._process = None
            _stop(process)
        is_slow = -process.returncode in (signal.SIGKILL, getattr(signal, "SIGXCPU", None))
        return TOO_LONG if is_slow else TOO_MUCH

    def _begun(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-P", str(_SCRIPT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
            start_new_session=True,  # ^C is for this process alone
        )
        finalize(self, _stop, process)
        _tell(process, self._opening)
        return process


def _tell(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()


def _answer(process: subprocess.Popen[str], asked: Mapping[str, Any]) -> str:
    """A line; empty where it has ended."""
    assert process.stdout is not None
    try:
        _tell(process, json.dumps(asked))
    except BrokenPipeError:
        return ""
    return process.stdout.readline()


def _stop(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    for end in (process.stdin, process.stdout):
        assert end is not None
        with suppress(BrokenPipeError):
            end.close()
