"""The store: K and V rows of all layers."""

from __future__ import annotations

import math
import mmap
import sys
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from forerun.kernels.base import AttentionShape
from forerun.kernels.cpu.codegen.lanes import GROUP_LEN, padded
from forerun.kernels.host_memory import require_memory
from forerun.types import IntArray

Stored = npt.NDArray[np.float32] | npt.NDArray[np.float16]


@dataclass(frozen=True, eq=False)
class KVStore:
    """Keys and values, contiguous per head, with head_dim padded to a multiple of 16 by zeros.

    Values are stored row by row, keys in blocks of 16, one dimension of all 16 after the other.
    """

    k: Stored  # [L, G, blocks, padded head_dim, 16]
    v: Stored  # [L, G, slots, padded head_dim]
    passes: OrderedDict[Any, Any] = field(default_factory=OrderedDict)  # see `runtime/replay.py`

    @classmethod
    def new(cls, shape: AttentionShape, num_layers: int, num_slots: int, dtype: str) -> KVStore:
        heads, width = (num_layers, shape.num_kv_heads), padded(shape.head_dim)
        num_slots = padded(num_slots)
        blocks = (num_slots // GROUP_LEN, width, GROUP_LEN)
        require_memory(num_slots * cls.row_bytes(shape, num_layers, dtype))
        return cls(_zeros((*heads, *blocks), dtype), _zeros((*heads, num_slots, width), dtype))

    @staticmethod
    def row_bytes(shape: AttentionShape, num_layers: int, dtype: str) -> int:
        num_numbers = 2 * num_layers * shape.num_kv_heads * padded(shape.head_dim)
        return num_numbers * np.dtype(dtype).itemsize

    @property
    def rows(self) -> tuple[Stored, Stored]:
        return self.k, self.v

    @cached_property
    def addresses(self) -> list[tuple[int, int]]:
        """The addresses of each layer's k and v."""
        return [
            (int(k.ctypes.data), int(v.ctypes.data)) for k, v in zip(self.k, self.v, strict=True)
        ]

    @cached_property
    def head_bytes(self) -> int:
        """The bytes from one key/value head to the next."""
        return int(self.k.strides[1])

    def move_rows(self, sources: IntArray, targets: IntArray) -> None:
        """Copy rows from slot to slot; indexing copies all sources before any write."""
        self.v[:, :, targets] = self.v[:, :, sources]
        (here, lane), (there, target) = (divmod(slots, GROUP_LEN) for slots in (sources, targets))
        self.k[:, :, there, :, target] = self.k[:, :, here, :, lane]


def _zeros(size: tuple[int, ...], dtype: str) -> Stored:
    """Allocate memory that becomes resident page by page, as rows are written.

    Every head of every layer has its own stretch, and a short text writes only the beginning of
    each; huge pages would make all of it resident.
    """
    num_bytes = np.dtype(dtype).itemsize * math.prod(size)
    try:
        memory = _private(num_bytes)
    except (OSError, OverflowError, ValueError) as error:
        raise MemoryError(f"{num_bytes} bytes of rows cannot be had: {error}") from error
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(memory, dtype).reshape(size)


def _private(num_bytes: int) -> mmap.mmap:
    """Map private memory, so that a forked process has its own rows; mmap's default shares them."""
    if sys.platform == "win32":
        return mmap.mmap(-1, num_bytes)
    return mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
