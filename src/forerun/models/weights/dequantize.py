"""Packed weights to float32, in numpy, bit for bit what llama.cpp's reference gives.

Each function takes raw blocks, uint8 [n, block bytes], and returns float32 [n, block_len].
Layouts, with d and m the float16 scale and minimum of a block:

    Q8_0  d | 32 int8                          x = d q
    Q4_0  d | 16 bytes of nibbles              x = d (q - 8); low nibbles are elements 0 … 15
    Q4_1  d m | 16 bytes of nibbles            x = d q + m
    Q5_0, Q5_1: as Q4 with the fifth bits of all 32 elements in 4 bytes before the nibbles
    Q4_K  d m | 12 bytes of 6-bit scales and minima for 8 groups of 32 | 128 bytes of nibbles
    Q5_K  as Q4_K with 32 bytes of fifth bits before the nibbles
    Q6_K  128 bytes of low nibbles | 64 bytes of high bit pairs | 16 int8 scales | d
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from forerun.errors import UnsupportedModel
from forerun.models.weights.formats import FORMATS, Format

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]

# Rows are expanded in slices of about this many elements, so that temporaries stay in cache.
_SLICE_LEN: Final = 1 << 18


def dequantize(data: Bytes, weight_format: str) -> Floats:
    """Expand uint8 [rows, bytes per row] to float32 [rows, row_len]."""
    packing = FORMATS[weight_format]
    unpack = _UNPACK.get(weight_format) or _from_library(packing)
    num_rows, row_bytes = data.shape
    row_len = row_bytes // packing.block_bytes * packing.block_len
    out = np.empty((num_rows, row_len), np.float32)
    step = max(1, _SLICE_LEN // row_len)
    for start in range(0, num_rows, step):
        part = np.ascontiguousarray(data[start : start + step])
        blocks = part.reshape(-1, packing.block_bytes)
        out[start : start + step] = unpack(blocks).reshape(len(part), row_len)
    return out


def _from_library(packing: Format) -> Callable[[Bytes], Floats]:
    """The gguf library's dequantiser, for formats too rare to be worth our own."""
    from gguf.constants import GGMLQuantizationType
    from gguf.quants import dequantize as library_dequantize

    kind = GGMLQuantizationType(packing.gguf_id)

    def unpack(blocks: Bytes) -> Floats:
        try:
            result: Floats = library_dequantize(blocks, kind)
        except NotImplementedError:
            raise UnsupportedModel(
                f"weights of format {packing.name} cannot be expanded; "
                "use a file in another quantisation, such as Q4_K_M or Q8_0."
            ) from None
        return result

    return unpack


def _view(blocks: Bytes, dtype: Any) -> npt.NDArray[Any]:
    return np.ascontiguousarray(blocks).view(dtype)


def _half(blocks: Bytes, start: int) -> Floats:
    """The float16 at byte `start` of each block, float32 [n, 1]."""
    return _view(blocks[:, start : start + 2], np.float16).astype(np.float32)


def _nibbles(packed: Bytes) -> Bytes:
    """[…, k] bytes to […, 2, k]: low nibbles, then high ones."""
    return np.stack([packed & 0x0F, packed >> 4], axis=-2)


def _f32(blocks: Bytes) -> Floats:
    return _view(blocks, np.float32)


def _f16(blocks: Bytes) -> Floats:
    return _view(blocks, np.float16).astype(np.float32)


def _bf16(blocks: Bytes) -> Floats:
    wide: Floats = (_view(blocks, np.uint16).astype(np.uint32) << 16).view(np.float32)
    return wide


def _q8_0(blocks: Bytes) -> Floats:
    return _half(blocks, 0) * _view(blocks[:, 2:], np.int8).astype(np.float32)


def _q4_0(blocks: Bytes) -> Floats:
    quants = _nibbles(blocks[:, 2:]).reshape(-1, 32).astype(np.int8) - np.int8(8)
    return _half(blocks, 0) * quants.astype(np.float32)


def _q4_1(blocks: Bytes) -> Floats:
    quants = _nibbles(blocks[:, 4:]).reshape(-1, 32).astype(np.float32)
    return _half(blocks, 0) * quants + _half(blocks, 2)


def _five_bits(fifth: Bytes, nibbles: Bytes) -> Bytes:
    """Nibbles [n, 16] and their fifth bits [n, 4] to quants [n, 32] in 0 … 31."""
    high = np.unpackbits(fifth, axis=1, bitorder="little")
    return _nibbles(nibbles).reshape(-1, 32) | (high << np.uint8(4))


def _q5_0(blocks: Bytes) -> Floats:
    quants = _five_bits(blocks[:, 2:6], blocks[:, 6:]).astype(np.int8) - np.int8(16)
    return _half(blocks, 0) * quants.astype(np.float32)


def _q5_1(blocks: Bytes) -> Floats:
    quants = _five_bits(blocks[:, 4:8], blocks[:, 8:])
    return _half(blocks, 0) * quants.astype(np.float32) + _half(blocks, 2)


def _group_scales(packed: Bytes) -> tuple[Bytes, Bytes]:
    """The 6-bit scales and minima [n, 8] of a K block, from its 12 bytes.

    Groups 0 … 3 sit in the low six bits of bytes 0 … 3 and 4 … 7; groups 4 … 7 take their low
    four bits from bytes 8 … 11 and their high two from what the first eight bytes leave over.
    """
    first, second, third = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = [first & 0x3F, (third & 0x0F) | ((first >> 6) << 4)]
    minima = [second & 0x3F, (third >> 4) | ((second >> 6) << 4)]
    return np.concatenate(scales, axis=1), np.concatenate(minima, axis=1)


def _k_block(blocks: Bytes, quants: Bytes) -> Floats:
    """Quants [n, 8, 32] of Q4_K or Q5_K with the scales at the block's start."""
    scales, minima = _group_scales(blocks[:, 4:16])
    d = (_half(blocks, 0) * scales.astype(np.float32))[:, :, None]
    m = (_half(blocks, 2) * minima.astype(np.float32))[:, :, None]
    return (d * quants.astype(np.float32) - m).reshape(-1, 256)


def _q4_k(blocks: Bytes) -> Floats:
    return _k_block(blocks, _nibbles(blocks[:, 16:].reshape(-1, 4, 32)).reshape(-1, 8, 32))


def _q5_k(blocks: Bytes) -> Floats:
    low = _nibbles(blocks[:, 48:].reshape(-1, 4, 32)).reshape(-1, 8, 32)
    groups = np.arange(8, dtype=np.uint8)[:, None]
    high = (blocks[:, None, 16:48] >> groups) & np.uint8(1)  # bit g of byte i belongs to group g
    return _k_block(blocks, low | (high << np.uint8(4)))


def _q6_k(blocks: Bytes) -> Floats:
    low = _nibbles(blocks[:, :128].reshape(-1, 2, 64)).reshape(-1, 8, 32)
    shifts = np.array([0, 2, 4, 6], dtype=np.uint8)[:, None]
    high = (blocks[:, 128:192].reshape(-1, 2, 1, 32) >> shifts) & 3
    quants = (low | (high.reshape(-1, 8, 32) << 4)).astype(np.int8) - np.int8(32)
    scales = _view(blocks[:, 192:208], np.int8).astype(np.float32)
    d = (_half(blocks, 208) * scales)[:, :, None]
    return (d * quants.reshape(-1, 16, 16).astype(np.float32)).reshape(-1, 256)


_UNPACK: Final[dict[str, Callable[[Bytes], Floats]]] = {
    "F32": _f32,
    "F16": _f16,
    "BF16": _bf16,
    "Q8_0": _q8_0,
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
}
