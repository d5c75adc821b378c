"""Compiled functions on disk: one file each, in a folder that only its owner may change.

Whoever can write such a file runs code in every process that reads it. So neither a folder nor a
file is used that belongs to someone else or that others may write to: functions are then compiled
in memory, and one warning says what to do. Whatever else is wrong with a file, the function is
compiled anew and written over it.
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

_HAS_OWNERS: Final = hasattr(os, "geteuid")  # Windows guards a user's folders by other means
_MAX_FILE_BYTES: Final = 1 << 26


@dataclass(frozen=True)
class CodeCache:
    """The functions of one version of the sources, compiled for one processor."""

    folder: Path
    key: bytes  # of all that could change the machine code

    @classmethod
    def open(cls, root: Path, key: bytes) -> CodeCache | None:
        """The folder for `key` in the cache at `root`, made where it is missing.

        None where it cannot be made, and, with a warning, where others could change what is in it.
        """
        root = root.resolve()
        folders = root, root / "kernels", root / "kernels" / key.hex()[:16]
        try:
            root.parent.mkdir(parents=True, exist_ok=True)
            for folder in folders:
                folder.mkdir(mode=0o755, exist_ok=True)  # not for others, whatever the mask
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
        """Whether there is a file for this function, good or not."""
        return self._path(name).is_file()

    def load(self, name: str) -> ObjectCode | None:
        """None where the function has to be compiled."""
        try:
            return unpacked(_read(self._path(name)), self._key_of(name))
        except OSError:
            return None

    def save(self, name: str, code: ObjectCode) -> None:
        """Where the disk is full or may not be written, the code serves this process alone."""
        path = self._path(name)
        scratch = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
        try:
            _write(scratch, code.packed(self._key_of(name)))
            scratch.replace(path)  # at once: others may be reading
        except OSError:
            with suppress(OSError):
                scratch.unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.code"

    def _key_of(self, name: str) -> bytes:
        return hashlib.sha256(self.key + name.encode()).digest()


def _flaw(folder: Path) -> str | None:
    """Why others could change what is in a folder, and what to do; None where they could not."""
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
    """Whether a group has one member, who has its name: what many systems make for every user,
    together with a mask that lets it write."""
    import grp
    import pwd

    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(group_id)
    except KeyError:
        return False
    return user.pw_gid == group_id and user.pw_name == group.gr_name and not group.gr_mem


def _read(path: Path) -> bytes:
    """A plain file's bytes, if nobody else can have written them."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    flags |= getattr(os, "O_NONBLOCK", 0)  # a fifo must not hold us up
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
