"""Reading and writing whole files: no read is unbounded or blocks, no file is left half written."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Final

from forerun.errors import DiskFull, InvalidOption

MIB: Final = 2**20
MAX_TEXT_BYTES: Final = 16 * MIB  # a prompt, a chat template
MAX_JSON_BYTES: Final = 256 * MIB  # a record, a model's configuration, a tokenizer

NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def read_bytes(path: Path, limit: int) -> bytes:
    """Read a regular file of at most `limit` bytes; raise an `OSError` that says why not.

    Pipes and devices are rejected, since reading them may block or never end.
    """
    try:
        _check_regular(os.stat(path).st_mode)
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except ValueError:  # the name has a NUL, or half of a surrogate pair
        raise OSError(errno.EINVAL, "no file can have such a name") from None
    with open(fd, "rb") as file:
        _check_regular(os.fstat(fd).st_mode)  # it may have been replaced since
        found = file.read(limit + 1)
    if len(found) > limit:
        raise OSError(errno.EFBIG, f"it is larger than {limit // MIB} MiB")
    return found


def read_text(path: Path, limit: int) -> str:
    """Read a text file as `read_bytes` does; raise `UnicodeDecodeError` if it is not UTF-8."""
    return read_bytes(path, limit).decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")


def write_whole(path: Path, data: str | bytes) -> None:
    """Write a file atomically: no reader sees half of it, and no interrupted run leaves half.

    Text gets a newline at its end. An existing device or pipe (/dev/stdout) is written to, never
    replaced.
    """
    whole = data if isinstance(data, bytes) else f"{data}\n".encode(errors="replace")
    try:
        if _is_special(path):
            _write_into(path, whole)
        else:
            _replace(Path(os.path.realpath(path)), whole)
    except ValueError:
        raise InvalidOption(f"no file can be called {str(path)!r}; choose another place.") from None
    except OSError as error:
        if error.errno in NO_SPACE:
            raise full_disk(path, error) from None
        raise InvalidOption(
            f"cannot write {path}: {error.strerror}; choose another place."
        ) from None


def full_disk(where: Path, error: OSError) -> DiskFull:
    return DiskFull(
        f"cannot write {where}: {error.strerror}; free some space, or choose another place."
    )


def _check_regular(mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is a pipe or a device, not a file")


def _is_special(path: Path) -> bool:
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def _write_into(path: Path, data: bytes) -> None:
    """Write to a device or a pipe; fail, rather than wait, if no process reads from the pipe."""
    fd = os.open(path, os.O_WRONLY | getattr(os, "O_NONBLOCK", 0))
    with open(fd, "wb") as file:
        os.set_blocking(fd, True)
        file.write(data)


def _replace(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_bytes(data)
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
