"""Run tests on a copy of the tree, each time in a process forked from one with the libraries.

The parent imports the slow libraries (numpy, numba, pytest, …) and nothing of Forerun; each child
imports Forerun afresh, from the copy.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import hypothesis
import pytest

_SLOW: Final = (
    *("numpy", "numpy.random", "numba", "llvmlite.binding", "hypothesis", "gguf", "jinja2"),
    *("hypothesis.extra.numpy", "hypothesis.stateful", "tokenizers", "safetensors.numpy", "rich"),
    *("typer", "huggingface_hub", "filelock", "asyncio"),
)
_COPIED: Final = ("src", "tests", "tools", "docs", "bench", "pyproject.toml", "README.md")
_PREFIX: Final = "forerun-mutants-"
_MAX_BYTES: Final = 16 << 30  # of address space: a mistake may allocate any amount


@dataclass(frozen=True)
class Outcome:
    """`killer` is the first test that failed; None if all passed."""

    killer: str | None
    seconds: float
    num_passed: int


def import_what_is_slow() -> None:
    for name in _SLOW:
        importlib.import_module(name)
    assert not any(name.split(".")[0] == "forerun" for name in sys.modules), "ours come fresh"
    gc.freeze()


class Copy:
    """A copy of the tree in a temporary folder; the checkout is never edited."""

    def __init__(self, root: Path) -> None:
        """Copy the tree without compiled code, or, from an earlier copy, with it."""
        self.folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        ignored = None if root.name.startswith(_PREFIX) else shutil.ignore_patterns("__pycache__")
        for name in _COPIED:
            source = root / name
            if source.is_dir():
                shutil.copytree(source, self.folder / name, ignore=ignored)
            elif source.exists():
                shutil.copy2(source, self.folder / name)
        self._report = self.folder / "report.json"

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(
        self, tests: Sequence[str], limit: float, path: str = "", source: bytes = b""
    ) -> None:
        """Start the tests, with `source` in place of the file `path` if that is given.

        They run in the order given, until one fails or `limit` seconds have passed.
        """
        self._began, self._limit = time.monotonic(), limit
        self._report.unlink(missing_ok=True)
        self._changed = self.folder / path if path else None
        if self._changed:
            stat = self._changed.stat()
            self._before = self._changed.read_bytes(), (stat.st_atime_ns, stat.st_mtime_ns)
            self._changed.write_bytes(source)
        self._child = os.fork()
        if self._child == 0:
            _run_and_exit(self.folder, tests, self._report, keeps_bytecode=not path)

    def poll(self) -> Outcome | None:
        """Return the outcome once the tests have ended, with the file restored; None until then."""
        is_over = os.waitpid(self._child, os.WNOHANG)[0] != 0
        seconds = time.monotonic() - self._began
        if not is_over and seconds < self._limit:
            return None
        if not is_over:
            self.stop()
            return Outcome("time limit", seconds, 0)
        self._restore()
        if not self._report.exists():
            return Outcome("the process died", seconds, 0)
        told = json.loads(self._report.read_text())
        return Outcome(told["killer"], seconds, told["num_passed"])

    def stop(self) -> None:
        """End the tests and what they started."""
        os.killpg(self._child, signal.SIGKILL)
        os.waitpid(self._child, 0)
        self._restore()

    def _restore(self) -> None:
        """Restore the old bytes and times, so that compiled code on disk is valid again."""
        if self._changed:
            source, times = self._before
            self._changed.write_bytes(source)
            os.utime(self._changed, ns=times)


class _Listener:
    def __init__(self) -> None:
        self.killer: str | None = None
        self.num_passed = 0

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and self.killer is None:
            self.killer = report.nodeid
        self.num_passed += report.passed and report.when == "call"

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed and self.killer is None:
            self.killer = f"{report.nodeid} (collecting)"


def _run_and_exit(
    folder: Path, tests: Sequence[str], report: Path, *, keeps_bytecode: bool
) -> None:
    """Run the tests in the child; never returns."""
    status = 1
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_AS, (_MAX_BYTES, _MAX_BYTES))
        os.chdir(folder)
        sys.path[:0] = [str(folder / "src"), str(folder)]
        os.environ["PYTHONPATH"] = str(folder / "src")
        sys.dont_write_bytecode = not keeps_bytecode
        with (folder / "output.txt").open("w") as output:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
        listener = _Listener()
        options = ["-x", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:xdist"]
        options += ["-W", "ignore:Module already imported:pytest.PytestAssertRewriteWarning"]
        options += ["--hypothesis-seed=0", f"--hypothesis-profile={_never_shrink()}"]
        code = pytest.main([*options, *tests], plugins=[listener])
        if code == pytest.ExitCode.OK and _is_ours(folder):
            status = 0
        told = {"killer": listener.killer, "num_passed": listener.num_passed}
        if status and listener.killer is None:
            told["killer"] = f"pytest ended with {code!s}"
        report.write_text(json.dumps(told))
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


def _never_shrink() -> str:
    """Register a profile without shrinking, which may take minutes; return its name."""
    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    hypothesis.settings.register_profile("mutants", deadline=None, phases=phases)
    return "mutants"


def _is_ours(folder: Path) -> bool:
    """Whether the code under test was that of the copy, not an installed one."""
    return str(folder) in str(sys.modules["forerun"].__file__)
