"""Quantization of floats to packed blocks of 32, in GGUF's layout."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
F32 = npt.NDArray[np.float32]


def quantize_rows(rows: F32, weight_format: str) -> Bytes:
    """Pack float32 [n, in] as uint8 [n, bytes per row]; `in` is a multiple of 32."""
    assert rows.shape[1] % 32 == 0, rows.shape
    blocks = np.ascontiguousarray(rows, np.float32).reshape(-1, 32)
    packed = {"Q8_0": _q8_0, "Q4_0": _q4_0}[weight_format](blocks)
    return packed.reshape(len(rows), -1)


def _scaled(blocks: F32, divisor: F32) -> tuple[Bytes, F32]:
    """Return float16 scales as bytes [n, 2], and the blocks divided by them."""
    d = divisor.astype(np.float16)
    wide = d.astype(np.float32)
    inverse = np.divide(1, wide, out=np.zeros_like(wide), where=wide != 0)
    return d.view(np.uint8).reshape(-1, 2), blocks * inverse


def _q8_0(blocks: F32) -> Bytes:
    """d = max|x| / 127."""
    d, units = _scaled(blocks, np.abs(blocks).max(axis=1, keepdims=True) / np.float32(127))
    quants = np.clip(np.rint(units), -127, 127).astype(np.int8)
    return np.concatenate((d, quants.view(np.uint8)), axis=1)


def _q4_0(blocks: F32) -> Bytes:
    """d = x / -8 for the x of largest magnitude, which is then represented exactly, but for d's
    own rounding."""
    extreme = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=1)[:, None], axis=1)
    d, units = _scaled(blocks, extreme / np.float32(-8))
    quants = (np.clip(np.rint(units), -8, 7) + 8).astype(np.uint8)
    return np.concatenate((d, quants[:, :16] | (quants[:, 16:] << 4)), axis=1)
