"""The header of a GGUF file: metadata and where each tensor lies.

    magic "GGUF" | version u32 | num_tensors u64 | num_fields u64
    fields:  name | type u32 | value
    tensors: name | num_dims u32 | dims u64… (fastest first) | format u32 | offset u64
    padding to the alignment, then the tensors' data, each padded to the alignment

The file is not trusted: every length is checked against the bytes that remain before anything
is read or allocated.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from forerun.errors import InvalidWeights, UnsupportedModel
from forerun.models.weights.formats import FORMATS_BY_GGUF_ID, Format

_SCALARS: Final[dict[int, str]] = {
    0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4",
    6: "<f4", 7: "|b1", 10: "<u8", 11: "<i8", 12: "<f8",
}  # fmt: skip
_FLOAT32: Final = 6
_STRING: Final = 8
_ARRAY: Final = 9

# Far above any known model, far below what could do harm.
_MAX_FIELDS: Final = 1 << 16
_MAX_TENSORS: Final = 1 << 16
_MAX_NAME_BYTES: Final = 1 << 10
_MAX_STRINGS: Final = 1 << 22
_MAX_DIMS: Final = 4


@dataclass(frozen=True)
class TensorEntry:
    """Where one tensor lies in the file."""

    name: str
    shape: tuple[int, ...]  # row-major: [rows, row_len], or [n]
    format: Format
    start: int

    @property
    def num_bytes(self) -> int:
        return math.prod(self.shape[:-1]) * self.format.row_bytes(self.shape[-1])


@dataclass(frozen=True)
class GgufHeader:
    """What a GGUF file says before its weights. Numeric arrays stay numpy arrays."""

    metadata: dict[str, Any]
    tensors: dict[str, TensorEntry]


class _Cursor:
    """A position in the mapped file that never passes its end."""

    def __init__(self, data: npt.NDArray[np.uint8], path: Path) -> None:
        self.path = path
        self.at = 0
        self.num_bytes = data.size
        self._data = data
        self._view = data.data

    def fail(self, problem: str) -> InvalidWeights:
        return InvalidWeights(f"{self.path}: {problem}; download the file again.")

    def _advance(self, num_bytes: int, what: str) -> int:
        """Move on by `num_bytes` and return the old position; raises if the file is too short."""
        left = self.num_bytes - self.at
        if num_bytes > left:
            raise self.fail(f"{what} needs {num_bytes} bytes where {left} are left")
        self.at += num_bytes
        return self.at - num_bytes

    def u32(self, what: str) -> int:
        return int(struct.unpack_from("<I", self._view, self._advance(4, what))[0])

    def u64(self, what: str) -> int:
        return int(struct.unpack_from("<Q", self._view, self._advance(8, what))[0])

    def string(self, what: str, max_bytes: int | None = None) -> str:
        num_bytes = self.u64(f"the length of {what}")
        if max_bytes is not None and num_bytes > max_bytes:
            raise self.fail(f"{what} claims {num_bytes} bytes, more than {max_bytes}")
        start = self._advance(num_bytes, what)
        try:
            return str(self._view[start : start + num_bytes], "utf-8")
        except UnicodeDecodeError:
            raise self.fail(f"{what} is not UTF-8") from None

    def array(self, dtype: str, count: int, what: str) -> npt.NDArray[Any]:
        num_bytes = count * np.dtype(dtype).itemsize
        start = self._advance(num_bytes, what)
        return self._data[start : start + num_bytes].view(dtype)

    def strings(self, count: int, what: str) -> list[str]:
        if count > _MAX_STRINGS or count * 8 > self.num_bytes - self.at:
            raise self.fail(f"{what} claims {count} strings, more than the file can hold")
        return [self.string(f"{what}[{i}]") for i in range(count)]


def read_gguf_header(data: npt.NDArray[np.uint8], path: Path) -> GgufHeader:
    """Parse and check the header of the mapped file `data` (uint8, the whole file)."""
    cursor = _Cursor(data, path)
    num_tensors, num_fields = _read_counts(cursor)
    metadata = _read_fields(cursor, num_fields)
    entries = _read_entries(cursor, num_tensors)
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise cursor.fail(f"general.alignment is {alignment!r}, not a power of two")
    return GgufHeader(metadata, _place_tensors(cursor, entries, alignment))


def _read_counts(cursor: _Cursor) -> tuple[int, int]:
    magic = cursor.u32("the magic number")
    if magic != int.from_bytes(b"GGUF", "little"):
        raise InvalidWeights(
            f"{cursor.path} is not a GGUF file; give a file that starts with GGUF."
        )
    version = cursor.u32("the version")
    if version not in (2, 3):
        raise UnsupportedModel(
            f"{cursor.path} has GGUF version {version}; "
            "convert it to version 2 or 3 (little-endian)."
        )
    num_tensors, num_fields = cursor.u64("the tensor count"), cursor.u64("the field count")
    if num_tensors > _MAX_TENSORS:
        raise cursor.fail(f"the tensor count is {num_tensors}, more than {_MAX_TENSORS}")
    if num_fields > _MAX_FIELDS:
        raise cursor.fail(f"the field count is {num_fields}, more than {_MAX_FIELDS}")
    return num_tensors, num_fields


def _read_fields(cursor: _Cursor, num_fields: int) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    for i in range(num_fields):
        name = cursor.string(f"the name of field {i}", _MAX_NAME_BYTES)
        if name in metadata:
            raise cursor.fail(f"field {name!r} appears twice")
        metadata[name] = _read_value(cursor, name)
    return metadata


def _read_value(cursor: _Cursor, name: str) -> Any:
    what = f"field {name!r}"
    kind = cursor.u32(f"the type of {what}")
    if kind == _STRING:
        return cursor.string(what)
    if kind in _SCALARS:
        value = cursor.array(_SCALARS[kind], 1, what)[0]
        return float(str(value)) if kind == _FLOAT32 else value.item()  # 1e-05, not 9.99999975e-06
    if kind != _ARRAY:
        raise cursor.fail(f"{what} has the unknown type {kind}")
    kind, count = cursor.u32(f"the type of {what}"), cursor.u64(f"the length of {what}")
    if kind == _STRING:
        return cursor.strings(count, what)
    if kind in _SCALARS:
        return cursor.array(_SCALARS[kind], count, what)
    raise cursor.fail(f"{what} is an array of the unsupported type {kind}")


def _read_entries(cursor: _Cursor, num_tensors: int) -> list[TensorEntry]:
    """Read the list of tensors; each `start` still counts from where the data begins."""
    entries: dict[str, TensorEntry] = {}
    for i in range(num_tensors):
        name = cursor.string(f"the name of tensor {i}", _MAX_NAME_BYTES)
        if name in entries:
            raise cursor.fail(f"tensor {name!r} appears twice")
        entries[name] = _read_entry(cursor, name)
    return list(entries.values())


def _read_entry(cursor: _Cursor, name: str) -> TensorEntry:
    what = f"tensor {name!r}"
    num_dims = cursor.u32(f"the dimension count of {what}")
    if not 1 <= num_dims <= _MAX_DIMS:
        raise cursor.fail(f"{what} has {num_dims} dimensions")
    dims = [cursor.u64(f"a dimension of {what}") for _ in range(num_dims)]
    gguf_id = cursor.u32(f"the format of {what}")
    if gguf_id not in FORMATS_BY_GGUF_ID:
        raise cursor.fail(f"{what} has the unknown format {gguf_id}")
    weight_format = FORMATS_BY_GGUF_ID[gguf_id]
    if 0 in dims or dims[0] % weight_format.block_len:
        raise cursor.fail(f"{what} of format {weight_format.name} has dimensions {dims}")
    offset = cursor.u64(f"the offset of {what}")
    return TensorEntry(name, tuple(reversed(dims)), weight_format, offset)


def _place_tensors(
    cursor: _Cursor, entries: list[TensorEntry], alignment: int
) -> dict[str, TensorEntry]:
    """Make each `start` an offset in the file. Tensors must lie in the order listed, with no gaps
    but padding."""
    base = _align(cursor.at, alignment)
    tensors, expected = {}, 0
    for entry in entries:
        what, offset = f"tensor {entry.name!r}", entry.start
        end = offset + entry.num_bytes
        if offset != expected:
            raise cursor.fail(f"{what} has offset {offset} where {expected} is due")
        if base + end > cursor.num_bytes:
            raise cursor.fail(f"{what} ends at byte {base + end} of {cursor.num_bytes}")
        tensors[entry.name] = replace(entry, start=base + offset)
        expected = _align(end, alignment)
    return tensors


def _align(position: int, alignment: int) -> int:
    return (position + alignment - 1) // alignment * alignment
