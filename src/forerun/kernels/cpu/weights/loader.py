"""Loads matrices and vectors: in the file's own format if there is a kernel for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from forerun.kernels.base import StoredTensor, WeightSource
from forerun.kernels.cpu.codegen.lanes import padded
from forerun.kernels.cpu.products.formats import FLOATS, FORMATS, PACKED
from forerun.kernels.cpu.weights.interleave import Tiles
from forerun.kernels.cpu.weights.load_report import LoadReport
from forerun.kernels.cpu.weights.repack import repacked
from forerun.kernels.cpu.weights.scales import check_scales

Bytes = npt.NDArray[np.uint8]
F32 = npt.NDArray[np.float32]

QUANTIZATIONS: Final = {"int8": "Q8_0", "int4": "Q4_0"}
_FALLBACK: Final = "Q8_0"
_MIN_OUTPUTS: Final = 16  # the outputs of the largest tile
_CHUNK_BYTES: Final = 1 << 14


@dataclass(frozen=True)
class Part:
    """One stored matrix [num_out, in] in one format."""

    weight_format: str
    data: Bytes  # [num_out, row_bytes]; a tiny matrix is padded to more rows than outputs
    num_out: int
    tiling: Tiles | None = None  # if products read tiles

    @cached_property
    def address(self) -> int:
        """The address of the rows, not interleaved."""
        return int(self.data.ctypes.data)

    @cached_property
    def tiles(self) -> Bytes:
        """The weights as products read them; interleaved when the first product is recorded."""
        if self.tiling is None:
            return self.data
        return self.tiling.interleaved(self.data, self.weight_format)

    @cached_property
    def product_address(self) -> int:
        return int(self.tiles.ctypes.data)

    @cached_property
    def product_row_bytes(self) -> int:
        """The bytes of one output in `tiles`."""
        if self.tiling is None:
            return self.row_bytes
        return int(self.tiles[0].nbytes) // self.tiling.num_outputs

    @cached_property
    def row_bytes(self) -> int:
        return self.data.nbytes // len(self.data)

    @cached_property
    def num_blocks(self) -> int:
        return self.row_bytes // FORMATS[self.weight_format].block_bytes

    @cached_property
    def chunk_len(self) -> int:
        """The outputs of a chunk: a multiple of tiles, few enough that threads can share work."""
        return max(_MIN_OUTPUTS, _CHUNK_BYTES // self.row_bytes // _MIN_OUTPUTS * _MIN_OUTPUTS)

    @cached_property
    def sizes(self) -> tuple[int, int]:
        """The number of rows, and that of a chunk."""
        return len(self.data), self.chunk_len

    @cached_property
    def num_chunks(self) -> int:
        """The number of chunks; the last one is the longest, as it takes the remainder."""
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
        """The outputs that a product writes: for a tiny matrix, as many as a tile has."""
        return max(self.num_out, _MIN_OUTPUTS)


@dataclass(frozen=True)
class Loader:
    """Turns tensors of a file into matrices; with `quantization`, float matrices are packed."""

    quantization: str | None
    report: LoadReport

    def matrix(self, source: WeightSource, names: Sequence[str], biases: Sequence[str]) -> Matrix:
        assert len(biases) in (0, len(names)), (names, biases)
        tensors = [source.tensor(name) for name in names]
        if min(tensor.shape[0] for tensor in tensors) < _MIN_OUTPUTS:
            for tensor in tensors:
                if tensor.format in PACKED:
                    check_scales(tensor)
            parts = [_float_part(np.concatenate([source.float32(name) for name in names]))]
        else:
            parts = [self._part(tensor) for tensor in tensors]
        bias = np.concatenate([self._floats(source, name) for name in biases]) if biases else None
        return Matrix(tuple(parts), None if bias is None else _vector(bias), tensors[0].shape[1])

    def vector(self, source: WeightSource, name: str) -> Vector:
        return _vector(self._floats(source, name))

    def _floats(self, source: WeightSource, name: str) -> F32:
        self.report.begin("loading weights")
        return source.float32(name)

    def _part(self, tensor: StoredTensor) -> Part:
        num_out = tensor.shape[0]
        target = self._format_for(tensor)
        if target != tensor.format:
            self.report.begin(f"packing weights as {target}")
            return Part(target, repacked(tensor, target), num_out)
        self.report.begin("loading weights")
        if tensor.format in FLOATS:
            return Part(tensor.format, _wide(tensor), num_out)
        check_scales(tensor)
        return Part(tensor.format, _plain(tensor.data), num_out)

    def _format_for(self, tensor: StoredTensor) -> str:
        """Return the format to use: the file's own, unless it is packed as `quantization` says or
        has no kernel."""
        if tensor.format in FLOATS:
            if self.quantization is None or tensor.shape[1] % 32:
                return tensor.format
            self.report.num_quantized += 1
            return QUANTIZATIONS[self.quantization]
        if tensor.format in PACKED:
            return tensor.format
        self.report.stand_in(tensor.format)
        return _FALLBACK


def _vector(values: F32) -> Vector:
    row = np.zeros(padded(len(values)), np.float32)
    row[: len(values)] = values
    return Vector(row)


def _plain(data: Bytes) -> Bytes:
    return data if data.flags.c_contiguous else np.ascontiguousarray(data)


def _wide(tensor: StoredTensor) -> Bytes:
    """Return the rows of a float tensor, copied only if they must be padded."""
    size = FLOATS[tensor.format].block_bytes // 16  # bytes of a weight
    num_out, num_in = tensor.shape
    if num_in % 16 == 0:
        return _plain(tensor.data)
    rows = np.zeros((num_out, padded(num_in) * size), np.uint8)
    rows[:, : num_in * size] = tensor.data
    return rows


def _float_part(weight: F32) -> Part:
    """Return a part in float32, with padded rows, and at least as many rows as a tile has."""
    num_out, num_in = weight.shape
    rows = np.zeros((max(num_out, _MIN_OUTPUTS), padded(num_in)), np.float32)
    rows[:num_out, :num_in] = weight
    return Part("F32", rows.view(np.uint8), num_out)
