"""One function's machine code on disk.

    SHA-256 of the rest | Numba's compile result, pickled

LLVM ends the process over code that a bad disk has changed, so nothing is looked at before its
checksum is. Whatever is wrong with a file, the function is compiled anew and written over it.
"""

from __future__ import annotations

import hashlib
import pickle
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from numba.core.compiler import CompileResult
from numba.core.serialize import dumps

_DIGEST_BYTES: Final = 32


class KeptCode:
    """What Numba calls a cache, with the two methods that it asks for."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load_overload(self, _signature: Any, target: Any) -> Any:
        """The compile result, or None where it has to be made."""
        target.refresh()
        try:
            whole = self._path.read_bytes()
            digest, payload = whole[:_DIGEST_BYTES], whole[_DIGEST_BYTES:]
            if hashlib.sha256(payload).digest() != digest:
                return None
            return CompileResult._rebuild(target, *pickle.loads(payload))  # type: ignore[no-untyped-call]
        except Exception:  # a pickle can raise anything
            return None

    def save_overload(self, _signature: Any, result: Any) -> None:
        """Where the disk is full or may not be written, the code serves this process alone."""
        payload: bytes = dumps(result._reduce())  # type: ignore[no-untyped-call]
        scratch = self._path.with_name(f"{self._path.name}.{uuid.uuid4().hex}")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            scratch.write_bytes(hashlib.sha256(payload).digest() + payload)
            scratch.replace(self._path)  # at once: others may be reading
        except OSError:
            with suppress(OSError):
                scratch.unlink(missing_ok=True)
