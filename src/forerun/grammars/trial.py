"""Tries grammars of callers who are not trusted in a process of its own, before they are used."""

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
_SECONDS: Final = 1.0  # of CPU time
_PATIENCE: Final = 10.0  # seconds of wall time, however busy the machine is
_MEMORY: Final = 1 << 30  # bytes
TOO_LONG: Final = "it takes too long"
TOO_MUCH: Final = "it is too much"


class Trial:
    """A process that compiles a grammar and follows it for some steps.

    Hostile grammars make llguidance overflow its stack, take memory without end or compute for
    minutes. The process then ends, and the next grammar gets a new one. It starts with the first
    grammar, and is told the `vocabulary` and llguidance's `limits`. `seconds` is the CPU time of
    all answers.
    """

    def __init__(self, vocabulary: Mapping[str, Any], limits: Mapping[str, Any]) -> None:
        self.seconds = 0.0
        bounds = {"seconds": _SECONDS, "memory": _MEMORY}
        self._opening = json.dumps({**vocabulary, "limits": limits, **bounds})
        self._lock = Lock()  # one grammar at a time
        self._process: _Process | None = None
        self._interrupting = Lock()  # guards:
        self._is_asking = self._is_interrupted = False

    def complaint(self, text: str, *, is_looked_at: bool = False) -> str | None:
        """Return why a grammar cannot be used, None if it can.

        With `is_looked_at` it is compiled and asked for one mask, and not followed."""
        asked = json.dumps({"text": text, "walks": not is_looked_at})
        with self._lock:
            with self._interrupting:
                self._is_asking, self._is_interrupted = True, False
            answer = ""
            try:
                process = self._running()
                if not self._is_interrupted:
                    answer = process.answer(asked)
            finally:
                with self._interrupting:
                    self._is_asking = False
                    is_over = self._is_interrupted or not answer
                if is_over:  # a late answer would be taken for the next grammar's
                    self._stop()
        if is_over:
            return TOO_LONG if process.was_slow else TOO_MUCH
        complaint: str | None
        complaint, seconds = json.loads(answer)
        self.seconds += seconds
        return TOO_MUCH if complaint and complaint.startswith("panic") else complaint

    def interrupt(self) -> None:
        """End the trial of the current grammar, which is then refused."""
        with self._interrupting:
            if self._is_asking:
                self._is_interrupted = True
                if self._process is not None:
                    self._process.kill()

    def _running(self) -> _Process:
        if self._process is not None and self._process.has_ended:  # it was killed from outside
            self._stop()
        self._process = self._process or _Process(self._opening)
        return self._process

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.stop()


class _Process:
    """A running trial process: answers a line with a line, and ends with this object."""

    def __init__(self, opening: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(_SCRIPT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
            start_new_session=True,  # ^C must not reach it
        )
        self.kill = self._process.kill
        self.stop = finalize(self, _stop, self._process)
        if not self.answer(opening):
            self.stop()
            raise OSError("the process that tries grammars does not begin")

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    @property
    def was_slow(self) -> bool:
        by = (signal.SIGKILL, getattr(signal, "SIGPROF", None))
        return -self._process.returncode in by

    def answer(self, line: str) -> str:
        """Send a line and return the answer; empty if the process has ended or took too long."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        patience = Timer(_PATIENCE, self.kill)
        patience.start()
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except OSError:  # a broken pipe
            return ""
        finally:
            patience.cancel()
        return answer if answer.endswith("\n") else ""


def _stop(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    for end in (process.stdin, process.stdout):
        assert end is not None
        with suppress(OSError):
            end.close()
