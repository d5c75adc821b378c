"""Wrappers of standard output and standard error.

Every character can be printed: one that the encoding lacks is replaced. A write that fails raises
`CannotPrint` (not an `OSError`: rich and typer end the process over those with exit codes of their
own), and later output is dropped.
"""

from __future__ import annotations

import codecs
import errno
import io
import json
import os
import re
import select
import sys
from typing import TYPE_CHECKING, Any, Final, TextIO

from forerun.files import NO_SPACE

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_REPLACE: Final = "forerun.replace"
# One character for one, so that tables stay aligned; ASCII, which every encoding has.
_NEAREST: Final = str.maketrans(
    "✓✗→←◀▶▲▪−⏎…·–—×÷≥≤√∞αβγδτλΣ²³’‘“”⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏",
    "+x><<>^*-|..--x/><v8abgdtlS23''\"\"-\\|/-\\|/-\\",
)


class CannotPrint(Exception):
    """A write to standard output or standard error failed."""

    def __init__(self, stream: str, error: OSError) -> None:
        super().__init__(
            f"cannot write to {stream}: {error.strerror}; redirect it to a file or a pipe."
        )
        self.reader_left = error.errno in (errno.EPIPE, errno.ESHUTDOWN, errno.ECONNRESET)
        self.is_full = error.errno in NO_SPACE


def open_output() -> bool:
    """Wrap both streams; return False if standard output is closed.

    Descriptors of closed streams are occupied first: the next file to be opened would get one, and
    with it what libraries print.
    """
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(fd)
    for name in ("COLUMNS", "LINES"):  # rich takes any digits for a size
        if not re.fullmatch(r"[1-9][0-9]{0,3}", os.environ.get(name, "1")):
            del os.environ[name]
    codecs.register_error(_REPLACE, _replaced)
    is_open = sys.stdout is not None
    sys.stderr = _door(sys.stderr, "standard error")
    sys.stdout = _door(sys.stdout, "standard output")
    return is_open


def say(text: str = "", *, err: bool = False) -> None:
    """Print a line of text; typer's `echo` would treat an ASCII terminal as UTF-8."""
    print(text, file=sys.stderr if err else sys.stdout)


def say_json(value: Any, indent: int | None = None) -> None:
    """Print JSON; unless the encoding is Unicode, escape what is not ASCII, so nothing is lost."""
    is_unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    say(json.dumps(value, indent=indent, ensure_ascii=not is_unicode))


def _door(stream: TextIO | None, name: str) -> TextIO:
    if stream is None:
        return open(os.devnull, "w", encoding="utf-8")
    stream.flush()
    buffer: Any = stream.buffer  # type: ignore[attr-defined,unused-ignore]
    raw = _Door(getattr(buffer, "raw", buffer), name)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=stream.encoding,
        errors=_REPLACE,
        line_buffering=name == "standard error" or stream.isatty(),
    )


class _Door(io.RawIOBase):
    """The raw stream of a wrapper; after a failed write it drops all others."""

    def __init__(self, raw: io.FileIO, name: str) -> None:
        self._raw, self._stream = raw, name
        self._is_broken = False
        self.name = raw.name

    def write(self, data: ReadableBuffer) -> int:
        if self._is_broken:
            return memoryview(data).nbytes
        try:
            while (num_written := self._raw.write(data)) is None:  # non-blocking: wait
                select.select([], [self._raw], [])
        except OSError as error:
            self._is_broken = True
            raise CannotPrint(self._stream, error) from None
        return num_written

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._raw.fileno()

    def isatty(self) -> bool:
        return self._raw.isatty()


def _replaced(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    nearest = error.object[error.start : error.end].translate(_NEAREST)
    return nearest.encode("ascii", "replace").decode(), error.end
