"""A compiled function as bytes: a plain header, then object code.

    magic | version | key | length of names | length of code | SHA-256 | names | code

`key` identifies what the code was compiled from and for. The names, separated by line feeds, are
the symbol to call and those that the code calls. LLVM ends the process if it loads damaged code, so
the checksum, which covers everything but itself, is compared before. Nothing in a file is
interpreted by Python.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from typing import Final

MAGIC: Final = b"forerun\0"
VERSION: Final = 1
KEY_BYTES: Final = 32
_HEADER: Final = struct.Struct(f"<8sI{KEY_BYTES}sIQ32s")


@dataclass(frozen=True)
class ObjectCode:
    symbols: tuple[str, ...]  # the function to call; then the external symbols it needs
    code: bytes  # an object file of this platform

    def packed(self, key: bytes) -> bytes:
        """Return the contents of the file: header, names and code."""
        assert len(key) == KEY_BYTES, key
        names = "\n".join(self.symbols).encode("ascii")
        sizes = len(names), len(self.code)
        digest = _digest(key, names, self.code)
        return _HEADER.pack(MAGIC, VERSION, key, *sizes, digest) + names + self.code


def unpacked(whole: bytes, key: bytes) -> ObjectCode | None:
    """Return the object code that `packed` wrote with this key; None for anything else."""
    if len(whole) < _HEADER.size:
        return None
    magic, version, its_key, names_len, code_len, digest = _HEADER.unpack_from(whole)
    if (magic, version, its_key) != (MAGIC, VERSION, key):
        return None
    if len(whole) != _HEADER.size + names_len + code_len:
        return None
    names, code = whole[_HEADER.size :][:names_len], whole[_HEADER.size + names_len :]
    if _digest(key, names, code) != digest:
        return None
    return ObjectCode(tuple(names.decode("ascii").split("\n")), code)


def _digest(key: bytes, names: bytes, code: bytes) -> bytes:
    sizes = struct.pack("<IQ", len(names), len(code))
    return hashlib.sha256(MAGIC + struct.pack("<I", VERSION) + key + sizes + names + code).digest()
