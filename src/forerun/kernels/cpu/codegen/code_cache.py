"""The cache of compiled functions on disk: a file each, in a folder only its owner may write to.

A user who can write such a file can run code in every process that loads it. So a folder or file
that belongs to another user, or that others may write to, is not used: functions are then compiled
in memory, and one warning says what to do. If anything else is wrong with a file, the function is
compiled again and the file is replaced.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import stat
import uuid
import warnings
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from forerun.kernels.cpu.codegen.object_code import ObjectCode, unpacked

_HAS_OWNERS: Final = hasattr(os, "geteuid")  # Windows protects a user's folders by other means
_MAX_FILE_BYTES: Final = 1 << 26


@dataclass(frozen=True)
class CodeCache:
    """The functions of one version of the sources, compiled for one processor."""

    folder: Path
    key: bytes  # a hash of all that could change the machine code

    @classmethod
    def open(cls, root: Path, key: bytes) -> CodeCache | None:
        """Open, or create, the folder for `key` in the cache at `root`.

        Return None if it cannot be created, or, with a warning, if others could change its files.
        """
        root = root.resolve()
        folders = root, root / "kernels", root / "kernels" / key.hex()[:16]
        try:
            root.parent.mkdir(parents=True, exist_ok=True)
            for folder in folders:
                folder.mkdir(mode=0o755, exist_ok=True)  # others may not write, whatever the umask
        except OSError:
            return None
        for folder in folders:
            flaw = _flaw(folder)
            if flaw is not None:
                warnings.warn(
                    f"{folder} {flaw}, so compiled code is not kept there and every start "
                    "compiles anew.",
                    RuntimeWarning,
                    stacklevel=2,
                )
                return None
        return cls(folders[-1], key)

    def has(self, name: str) -> bool:
        """Whether there is a file for this function, valid or not."""
        return self._path(name).is_file()

    def load(self, name: str) -> ObjectCode | None:
        """Load a function; return None if it has to be compiled."""
        try:
            return unpacked(_read(self._path(name)), self._key_of(name))
        except OSError:
            return None

    def save(self, name: str, code: ObjectCode) -> None:
        """Save a function; if the disk is full or read-only, only this process has the code."""
        path = self._path(name)
        scratch = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
        try:
            _write(scratch, code.packed(self._key_of(name)))
            scratch.replace(path)  # atomic: other processes may be reading the file
        except OSError:
            with suppress(OSError):
                scratch.unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.code"

    def _key_of(self, name: str) -> bytes:
        return hashlib.sha256(self.key + name.encode()).digest()


def _flaw(folder: Path) -> str | None:
    """Return why others could change the files in a folder, and the remedy; None if they cannot."""
    if not _HAS_OWNERS:
        return None
    found = folder.lstat()
    if stat.S_ISLNK(found.st_mode):
        return "is a link to elsewhere (remove it)"
    if found.st_uid not in (os.geteuid(), 0):
        return "belongs to someone else (choose another cache folder, or remove it)"
    if _others_may_write(found):
        return f"may be changed by others (run: chmod go-w {shlex.quote(str(folder))})"
    return None


def _others_may_write(found: os.stat_result) -> bool:
    if found.st_mode & stat.S_IWOTH:
        return True
    return bool(found.st_mode & stat.S_IWGRP) and not _is_own_group(found.st_gid)


def _is_own_group(group_id: int) -> bool:
    """Whether a group is the user's private one, of the same name and with no other members. Many
    systems create these, and then set a umask that lets groups write."""
    import grp
    import pwd

    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(group_id)
    except KeyError:
        return False
    return user.pw_gid == group_id and user.pw_name == group.gr_name and not group.gr_mem


def _read(path: Path) -> bytes:
    """Read a regular file; raise `OSError` if another user can have written it."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    flags |= getattr(os, "O_NONBLOCK", 0)  # opening a FIFO must not block
    with os.fdopen(os.open(path, flags), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_size > _MAX_FILE_BYTES:
            raise OSError(f"{path} is no compiled function")
        if _HAS_OWNERS and (found.st_uid not in (os.geteuid(), 0) or _others_may_write(found)):
            raise OSError(f"{path} may have been written by others")
        return file.read()


def _write(path: Path, contents: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    with os.fdopen(os.open(path, flags, 0o644), "wb") as file:
        file.write(contents)
