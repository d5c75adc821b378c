"""Packed weights interleaved in tiles: the same part of several outputs side by side.

    file    output 0: block 0, block 1 …    output 1: block 0, block 1 …
    tile    block 0 of all outputs, block 1 of all outputs …

A block is cut into float16 scales and words of four bytes. In a tile the n outputs' scales, or
words, of one place are contiguous: byte `at` of a block becomes byte n·at of the tile's block. So
a vector over the outputs is one load, and a pass reads weights from front to back. If the last tile
would have too few outputs, it repeats some of the tile before it. If the processor multiplies
unsigned bytes, weights of Q8_0 are stored with 128 added; if it multiplies signed ones, weights of
Q6_K are stored as bytes.
"""

from __future__ import annotations

import mmap
from threading import Lock
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from forerun.kernels.cpu.codegen.machine import InstructionSet
from forerun.kernels.cpu.products.formats import PACKED, SIGNED_TILES

Bytes = npt.NDArray[np.uint8]

_PIECE_BYTES: Final = 32 << 20
_SLICE_BYTES: Final = 4 << 20  # of the file, interleaved at a time: so much is in memory twice
_LINE: Final = 64


class Tiles:
    """Makes tiles of as many outputs as a vector has, in pieces of memory so large that the system
    may use large pages."""

    def __init__(self, instructions: InstructionSet) -> None:
        self.num_outputs: Final = instructions.num_outputs
        self._is_signed: Final = instructions.is_signed
        self._layouts: Final = SIGNED_TILES if self._is_signed else PACKED
        self._free: Bytes = np.empty(0, np.uint8)
        self._lock = Lock()

    def interleaved(self, data: Bytes, weight_format: str) -> Bytes:
        """Return [num_out, row_bytes] as [tiles, blocks, bytes of a block of all outputs]."""
        count = self.num_outputs
        whole = len(data) // count * count
        num_blocks = data.shape[1] // PACKED[weight_format].block_bytes
        size = self._layouts[weight_format].block_bytes * count
        tiles = self._take(-(-len(data) // count) * num_blocks * size)
        tiles = tiles.reshape(-1, num_blocks, size)
        step = max(1, _SLICE_BYTES // (count * data.shape[1]))  # tiles
        for first in range(0, whole // count, step):
            part = tiles[first : min(first + step, whole // count)]
            rows = data[first * count : (first + len(part)) * count]
            self._interleave(rows, weight_format, part)
            _forget(rows)
        if whole < len(data):
            self._interleave(data[-count:], weight_format, tiles[-1:])
            _forget(data[-count:])
        return tiles

    def _take(self, num_bytes: int) -> Bytes:
        with self._lock:
            if len(self._free) < num_bytes:
                piece = np.empty(max(num_bytes, _PIECE_BYTES) + _LINE, np.uint8)
                self._free = piece[-piece.ctypes.data % _LINE :]
            taken = self._free[:num_bytes]
            self._free = self._free[-(-num_bytes // _LINE) * _LINE :]
            return taken

    def _interleave(self, data: Bytes, weight_format: str, tiles: Bytes) -> None:
        layout = self._layouts[weight_format]
        size = layout.block_bytes
        if layout is not PACKED[weight_format]:
            data = _as_bytes(data)
        num_words = (size - 2 * len(layout.scales_at)) // 4
        for at in layout.scales_at:
            _move(data, at, 1, np.dtype("<u2"), size, tiles)
        words = _move(data, layout.words_at, num_words, np.dtype("<u4"), size, tiles)
        if weight_format == "Q8_0" and not self._is_signed:
            words ^= np.uint32(0x80808080)


def _as_bytes(data: Bytes) -> Bytes:
    """Unpack rows of Q6_K: in every block 256 weights as bytes, then the scales."""
    blocks = data.reshape(-1, PACKED["Q6_K"].block_bytes)
    lows, highs = blocks[:, :128].reshape(-1, 2, 2, 32), blocks[:, 128:192].reshape(-1, 2, 32)
    found = np.empty((len(blocks), SIGNED_TILES["Q6_K"].block_bytes), np.uint8)
    weights = found[:, :256].reshape(-1, 2, 4, 32)
    for part in range(4):
        low = lows[:, :, part % 2] >> (4 * (part // 2)) & 15
        weights[:, :, part] = (low | (highs >> (2 * part) & 3) << 4) - np.uint8(32)
    found[:, 256:] = blocks[:, 192:]
    return found.reshape(len(data), -1)


def _move(
    data: Bytes, at: int, count: int, kind: np.dtype[np.generic], size: int, tiles: Bytes
) -> npt.NDArray[Any]:
    """Copy `count` numbers, from byte `at` of every block on, to the tiles; return a view of them
    there."""
    num_tiles, num_blocks, tile_bytes = tiles.shape
    num_outputs, row_bytes, each = tile_bytes // size, data.shape[1], kind.itemsize
    source = np.ndarray(
        (num_tiles, num_blocks, count, num_outputs),
        kind,
        data,
        at,
        (num_outputs * row_bytes, size, each, row_bytes),
    )
    target = np.ndarray(
        source.shape,
        kind,
        tiles,
        at * num_outputs,
        (num_blocks * tile_bytes, tile_bytes, each * num_outputs, each),
    )
    target[...] = source
    return target


def _forget(data: Bytes) -> None:
    """Give back the memory of weights that were read from a mapped file; it may be read again."""
    owner: object = data
    while isinstance(owner, np.ndarray):
        owner = owner.base
    if isinstance(owner, mmap.mmap) and hasattr(owner, "madvise"):
        first = data.ctypes.data - np.frombuffer(owner, np.uint8).ctypes.data
        first += -first % mmap.PAGESIZE  # the whole pages inside
        length = (data.nbytes - (-data.ctypes.data % mmap.PAGESIZE)) // mmap.PAGESIZE
        if length > 0:
            owner.madvise(mmap.MADV_DONTNEED, first, length * mmap.PAGESIZE)
