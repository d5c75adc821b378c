"""The K and V rows of all layers."""

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
    """A head's rows lie together, padded with zeros to 16 numbers. A value is a row; 16 keys are a
    block, in which a dimension of all of them lies together."""

    k: Stored  # [L, G, blocks, padded head_dim, 16]
    v: Stored  # [L, G, slots, padded head_dim]
    passes: OrderedDict[Any, Any] = field(default_factory=OrderedDict)  # kept: `runtime/replay.py`

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
        """Of each layer's k and v."""
        return [
            (int(k.ctypes.data), int(v.ctypes.data)) for k, v in zip(self.k, self.v, strict=True)
        ]

    @cached_property
    def head_bytes(self) -> int:
        """From one key/value head to the next."""
        return int(self.k.strides[1])

    def move_rows(self, sources: IntArray, targets: IntArray) -> None:
        """The right sides are copies, made first."""
        self.v[:, :, targets] = self.v[:, :, sources]
        (here, lane), (there, target) = (divmod(slots, GROUP_LEN) for slots in (sources, targets))
        self.k[:, :, there, :, target] = self.k[:, :, here, :, lane]


def _zeros(size: tuple[int, ...], dtype: str) -> Stored:
    """Memory that is taken page by page as rows are written.

    Every head of every layer has a stretch of its own, of which a short text writes the beginning;
    huge pages would make all of it resident.
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
    """A process that is forked off has rows of its own; mmap's default would share them."""
    if sys.platform == "win32":
        return mmap.mmap(-1, num_bytes)
    return mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
