"""What the command line shows while a model is loaded."""

from __future__ import annotations

import io
import re
import warnings

import pytest
from rich.console import Console

from forerun.cli.terminal.progress import loading


def shown(monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool) -> str:
    """Return what stderr shows of a load that reports progress and warns once."""
    out = io.StringIO()
    console = Console(file=out, force_terminal=is_terminal, width=60, color_system=None)
    monkeypatch.setattr("rich.console.Console", lambda **_options: console)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        with loading("a-model") as progress:
            progress("compiling linear, once for this machine", 0, 0)
            for idx in range(3):
                progress("packing weights as Q8_0", idx, 272)
            warnings.warn(
                "a note that is longer than a line of this terminal is\nTraceback (most recent …",
                stacklevel=1,
            )
            progress("compiling attend, once for this machine", 0, 0)
    return out.getvalue()


def test_a_log_has_notes_and_once_what_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    compiling = "compiling linear, once for this machine …\n"
    note = "note: a note that is longer than a line of this terminal is\n"
    assert shown(monkeypatch, is_terminal=False) == compiling + note


def test_a_terminal_shows_a_bar_and_keeps_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(monkeypatch, is_terminal=True)
    assert "note: a note" in text
    assert re.search(r"compiling attend, once", text)
    assert not re.search(r"compiling attend.*tensors", text), "it does not count these"
    assert "once)" not in text
    assert "Traceback" not in text
