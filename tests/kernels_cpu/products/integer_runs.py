"""Packed weights as integers with scales, in numpy: the documented input of integer products.

A run is (first weight, quants [outputs, 32 or 16], d [outputs], c [outputs] or None).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from forerun.models.weights.formats import FORMATS
from tests.kernels_cpu.packed import Bytes, PackedSource

Ints = npt.NDArray[np.int64]
F32 = npt.NDArray[np.float32]
Run = tuple[int, Ints, F32, F32 | None]


def runs_of(source: PackedSource) -> Iterator[Run]:
    layout = FORMATS[source.weight_format]
    for idx in range(source.data.shape[1] // layout.block_bytes):
        block = source.data[:, idx * layout.block_bytes :][:, : layout.block_bytes]
        for first, quants, d, c in _RUNS[source.weight_format](block):
            yield idx * layout.block_len + first, quants, d, c


def _half(block: Bytes, at: int) -> F32:
    return np.ascontiguousarray(block[:, at : at + 2]).view(np.float16)[:, 0].astype(np.float32)


def _nibbles(packed: Bytes) -> tuple[Ints, Ints]:
    return (packed & 15).astype(np.int64), (packed >> 4).astype(np.int64)


def _q8_0(block: Bytes) -> Iterator[Run]:
    yield 0, block[:, 2:].view(np.int8).astype(np.int64), _half(block, 0), None


def _q4_0(block: Bytes) -> Iterator[Run]:
    yield 0, np.concatenate(_nibbles(block[:, 2:]), axis=1) - 8, _half(block, 0), None


def _q4_1(block: Bytes) -> Iterator[Run]:
    quants = np.concatenate(_nibbles(block[:, 4:]), axis=1)
    yield 0, quants, _half(block, 0), _half(block, 2)


def _k_scales(block: Bytes) -> tuple[Ints, Ints]:
    """Eight scales and eight minima of 6 bits."""
    first, second, third = (block[:, at : at + 4].astype(np.int64) for at in (4, 8, 12))
    scales = np.concatenate((first & 63, (third & 15) | (first >> 6 << 4)), axis=1)
    minima = np.concatenate((second & 63, (third >> 4) | (second >> 6 << 4)), axis=1)
    return scales, minima


def _q45_k(block: Bytes) -> Iterator[Run]:
    d, m = _half(block, 0), _half(block, 2)
    scales, minima = _k_scales(block)
    has_fifth = block.shape[1] == 176
    for group in range(8):
        start = block.shape[1] - 128 + group // 2 * 32
        quants = _nibbles(block[:, start : start + 32])[group % 2]
        if has_fifth:
            quants = quants | ((block[:, 16:48].astype(np.int64) >> group & 1) << 4)
        scale, least = (x[:, group].astype(np.float32) for x in (scales, minima))
        yield 32 * group, quants, d * scale, -(m * least)


def _q6_k(block: Bytes) -> Iterator[Run]:
    d, scales = _half(block, 208), block[:, 192:208].view(np.int8).astype(np.float32)
    for group in range(16):
        chunk, within = divmod(group, 8)
        low_start = 64 * chunk + 16 * (within % 4)
        low = _nibbles(block[:, low_start : low_start + 16])[within // 4]
        high_start = 128 + 32 * chunk + 16 * (within % 2)
        high = block[:, high_start : high_start + 16].astype(np.int64) >> within // 2 * 2 & 3
        yield 16 * group, (low | high << 4) - 32, d * scales[:, group], None


_RUNS = {
    "Q8_0": _q8_0,
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q4_K": _q45_k,
    "Q5_K": _q45_k,
    "Q6_K": _q6_k,
}
