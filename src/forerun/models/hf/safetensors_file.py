"""One safetensors file: tensors mapped from disk, bfloat16 included.

    header length u64 | JSON {name: {dtype, shape, data_offsets: [start, end]}} | data

The file is not trusted: every offset is checked against the file before it is used.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from forerun.errors import InvalidWeights, UnsupportedModel
from forerun.models.weights.checkpoint import Tensor
from forerun.models.weights.formats import FORMATS
from forerun.models.weights.mapped_file import map_file

_SUPPORTED: Final = ("F32", "F16", "BF16")
_MAX_HEADER_BYTES: Final = 100_000_000  # the limit of the safetensors library


@dataclass(frozen=True)
class _Entry:
    shape: tuple[int, ...]
    dtype: str
    start: int
    end: int


class SafetensorsFile:
    """The tensors of one file, by name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._data = map_file(path)
        header, base = self._read_header()
        self._entries = {
            name: self._read_entry(name, fields, base)
            for name, fields in header.items()
            if name != "__metadata__"
        }
        self._check_layout(base)

    def names(self) -> Iterator[str]:
        return iter(self._entries)

    def has(self, name: str) -> bool:
        return name in self._entries

    def shape(self, name: str) -> tuple[int, ...]:
        return self._entries[name].shape

    def tensor(self, name: str) -> Tensor:
        entry = self._entries[name]
        if entry.dtype not in _SUPPORTED:
            raise UnsupportedModel(
                f"{self.path}: tensor {name!r} has dtype {entry.dtype}; "
                f"use weights in one of {', '.join(_SUPPORTED)}."
            )
        row_bytes = FORMATS[entry.dtype].row_bytes(entry.shape[-1] if entry.shape else 1)
        data = self._data[entry.start : entry.end].reshape(-1, row_bytes)
        return Tensor(name, entry.shape, entry.dtype, data)

    def blocks(self, name: str, format: str) -> Tensor:
        """Return a matrix of bytes as a tensor whose rows are blocks of a packed format."""
        entry, packed = self._entries[name], FORMATS[format]
        due = math.prod(entry.shape)
        is_whole = len(entry.shape) == 2 and entry.shape[1] % packed.block_bytes == 0
        if entry.dtype != "U8" or entry.end - entry.start != due or not is_whole:
            raise self._fail(f"tensor {name!r} is no matrix of {format} blocks")
        rows, num_bytes = entry.shape
        data = self._data[entry.start : entry.end].reshape(rows, num_bytes)
        shape = (rows, num_bytes // packed.block_bytes * packed.block_len)
        return Tensor(name, shape, format, data)

    def integers(self, name: str) -> npt.NDArray[np.int64]:
        """Return a vector of 64-bit integers, such as a map between vocabularies."""
        entry = self._entries[name]
        if entry.dtype != "I64" or entry.end - entry.start != 8 * math.prod(entry.shape):
            raise self._fail(f"tensor {name!r} is no vector of 64-bit integers")
        return self._data[entry.start : entry.end].view("<i8").astype(np.int64)

    def _fail(self, problem: str) -> InvalidWeights:
        return InvalidWeights(f"{self.path}: {problem}; download the file again.")

    def _read_header(self) -> tuple[dict[str, Any], int]:
        """Return the header's JSON, and where the data begins."""
        size = self._data.size
        if size < 8:
            raise self._fail(f"the header length needs 8 bytes where {size} are left")
        num_bytes = int.from_bytes(self._data[:8].tobytes(), "little")
        if num_bytes > min(size - 8, _MAX_HEADER_BYTES):
            raise self._fail(f"the header claims {num_bytes} bytes of a file of {size}")
        try:
            header = json.loads(self._data[8 : 8 + num_bytes].tobytes(), object_pairs_hook=_unique)
        except (ValueError, RecursionError) as error:
            raise self._fail(f"the header is not valid JSON ({error})") from None
        if not isinstance(header, dict):
            raise self._fail("the header is not a JSON object")
        return header, 8 + num_bytes

    def _read_entry(self, name: str, fields: Any, base: int) -> _Entry:
        what = f"tensor {name!r}"
        if not isinstance(fields, dict):
            raise self._fail(f"{what} is not described by a JSON object")
        dtype: Any = fields.get("dtype")
        shape: Any = fields.get("shape")
        span: Any = fields.get("data_offsets")
        if not isinstance(dtype, str):
            raise self._fail(f"the dtype of {what} is missing")
        if not _are_sizes(shape) or len(shape) > 8 or 0 in shape:
            raise self._fail(f"the shape of {what} is {str(shape)[:60]}")
        if not _are_sizes(span) or len(span) != 2:
            raise self._fail(f"data_offsets of {what} are {str(span)[:60]}")
        start, end = base + span[0], base + span[1]
        if not start <= end <= self._data.size:
            raise self._fail(f"{what} ends at byte {end} of {self._data.size}")
        if dtype in _SUPPORTED:
            due = math.prod(shape) * FORMATS[dtype].block_bytes
            if end - start != due:
                raise self._fail(f"{what} has {end - start} bytes where its shape needs {due}")
        return _Entry(tuple(shape), dtype, start, end)

    def _check_layout(self, base: int) -> None:
        """Raise unless the tensors fill the file without holes or overlaps."""
        expected = base
        for name, entry in sorted(self._entries.items(), key=lambda item: item[1].start):
            if entry.start != expected:
                raise self._fail(f"tensor {name!r} starts at {entry.start}, not {expected}")
            expected = entry.end
        if expected != self._data.size:
            raise self._fail(f"{self._data.size - expected} bytes follow the last tensor")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make a JSON object; raises `ValueError` if a key occurs twice."""
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a name appears twice")
    return result


def _are_sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)
