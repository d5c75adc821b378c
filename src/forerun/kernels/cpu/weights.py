"""Matrices as the file has them, ready for products."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from forerun.errors import UnsupportedModel
from forerun.kernels.base import StoredTensor, WeightSource
from forerun.kernels.cpu.program import padded
from forerun.kernels.cpu.quantize import quantize_rows
from forerun.kernels.cpu.scales import check_scales
from forerun.kernels.cpu.sweep import DECODERS

Bytes = npt.NDArray[np.uint8]
F32 = npt.NDArray[np.float32]

FLOAT_FORMATS: Final = {"F32": 4, "F16": 2, "BF16": 2}  # bytes per weight
QUANTIZATIONS: Final = {"int8": "Q8_0", "int4": "Q4_0"}
_FALLBACK: Final = "Q8_0"
_MIN_OUTPUTS: Final = 4  # the largest tile's
_CHUNK_BYTES: Final = 1 << 14


@dataclass(frozen=True)
class Part:
    """One stored matrix [num_out, in] in one format."""

    weight_format: str
    data: Bytes  # [num_out, row_bytes]; a tiny matrix has more rows than outputs
    num_out: int

    @cached_property
    def address(self) -> int:
        return int(self.data.ctypes.data)

    @cached_property
    def row_bytes(self) -> int:
        return self.data.nbytes // len(self.data)

    @cached_property
    def num_blocks(self) -> int:
        return self.row_bytes // DECODERS[self.weight_format].block_bytes

    @cached_property
    def chunk_len(self) -> int:
        """Outputs that a thread takes at once: few enough to share work, a multiple of tiles."""
        return max(8, _CHUNK_BYTES // self.row_bytes // 8 * 8)

    @cached_property
    def num_chunks(self) -> int:
        """The last chunk is the longest: it takes what is left over."""
        return max(1, len(self.data) // self.chunk_len)


@dataclass(frozen=True)
class Vector:
    data: F32  # padded with zeros

    @cached_property
    def address(self) -> int:
        return int(self.data.ctypes.data)


@dataclass(frozen=True)
class Matrix:
    """Parts stacked along the outputs."""

    parts: tuple[Part, ...]
    bias: Vector | None  # [num_out]
    num_in: int

    @cached_property
    def num_out(self) -> int:
        return sum(part.num_out for part in self.parts)

    @cached_property
    def num_written(self) -> int:
        """Outputs that a product writes: of a tiny matrix, as many as a tile has."""
        return max(self.num_out, _MIN_OUTPUTS)


@dataclass(frozen=True)
class Loader:
    """From tensors of a file to parts; `quantization` asks to pack float matrices.

    `note` hears of every tensor that is not held as the file has it.
    """

    quantization: str | None
    note: Callable[[str], None]

    def matrix(self, source: WeightSource, names: Sequence[str], biases: Sequence[str]) -> Matrix:
        assert len(biases) in (0, len(names)), (names, biases)
        tensors = [source.tensor(name) for name in names]
        if min(tensor.shape[0] for tensor in tensors) < _MIN_OUTPUTS:
            parts = [_float_part(np.concatenate([source.float32(name) for name in names]))]
        else:
            parts = [self._part(source, tensor) for tensor in tensors]
        bias = np.concatenate([source.float32(name) for name in biases]) if biases else None
        return Matrix(tuple(parts), None if bias is None else _vector(bias), tensors[0].shape[1])

    def vector(self, source: WeightSource, name: str) -> Vector:
        return _vector(source.float32(name))

    def _part(self, source: WeightSource, tensor: StoredTensor) -> Part:
        num_out, num_in = tensor.shape
        if tensor.format in FLOAT_FORMATS:
            return self._from_floats(tensor)
        if tensor.format in DECODERS:
            check_scales(tensor)
            return Part(tensor.format, _plain(tensor.data), num_out)
        self.note(
            f"{tensor.name} is {tensor.format}, which has no kernel; it is held as {_FALLBACK}"
        )
        if num_in % 32:
            return _float_part(source.float32(tensor.name))
        return Part(_FALLBACK, quantize_rows(source.float32(tensor.name), _FALLBACK), num_out)

    def _from_floats(self, tensor: StoredTensor) -> Part:
        num_out, num_in = tensor.shape
        if self.quantization is not None and num_in % 32 == 0:
            target = QUANTIZATIONS[self.quantization]
            self.note(f"quantising {tensor.name} to {self.quantization}")
            return Part(target, _packed(tensor, target), num_out)
        return Part(tensor.format, _wide(tensor), num_out)


def _vector(values: F32) -> Vector:
    row = np.zeros(padded(len(values)), np.float32)
    row[: len(values)] = values
    return Vector(row)


def _plain(data: Bytes) -> Bytes:
    return data if data.flags.c_contiguous else np.ascontiguousarray(data)


def _wide(tensor: StoredTensor) -> Bytes:
    """The rows of a float tensor, copied only where they must be padded."""
    size = FLOAT_FORMATS[tensor.format]
    num_out, num_in = tensor.shape
    if num_in % 16 == 0:
        return _plain(tensor.data)
    rows = np.zeros((num_out, padded(num_in) * size), np.uint8)
    rows[:, : num_in * size] = tensor.data
    return rows


def _float_part(weight: F32) -> Part:
    """Floats, with rows padded and at least as many rows as a tile has."""
    num_out, num_in = weight.shape
    rows = np.zeros((max(num_out, _MIN_OUTPUTS), padded(num_in)), np.float32)
    rows[:num_out, :num_in] = weight
    return Part("F32", rows.view(np.uint8), num_out)


def _packed(tensor: StoredTensor, target: str) -> Bytes:
    """Quantised in slices, so that no float copy of the whole is made."""
    num_out, num_in = tensor.shape
    step = max(1, (1 << 20) // num_in)
    parts = [
        quantize_rows(_floats_of(tensor.data[lo : lo + step], tensor.format), target)
        for lo in range(0, num_out, step)
    ]
    return np.concatenate(parts)


def _floats_of(data: Bytes, tensor_format: str) -> F32:
    raw = _plain(data)
    if tensor_format == "F32":
        return raw.view(np.float32)
    if tensor_format == "F16":
        return raw.view(np.float16).astype(np.float32)
    if tensor_format == "BF16":
        return (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    raise UnsupportedModel(f"weights of format {tensor_format} cannot be quantised on load.")
