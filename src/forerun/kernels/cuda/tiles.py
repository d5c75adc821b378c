"""Which tile a product is cut into.

Only `residual_columns` and `num_segments` decide bits, and neither sees the number of rows. The
rest is a matter of speed: K is walked in the same order by every tile (docs/gpu.md).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

NUM_MULTIPROCESSORS: Final = 132  # of an H100 or H200
RESIDUAL_COLUMNS: Final = 16  # of a tile whose squares are summed for the next norm
_WIDE: Final = 64  # from so many rows on, arithmetic counts as well as bytes
_LONG: Final = 4096  # columns
_SEGMENTED: Final = 1024  # columns; a shorter sum is over before the memory is


class Kind(Enum):
    PLAIN = "plain"
    GATED = "gated"
    ROTARY = "rotary"
    RESIDUAL = "residual"

    @property
    def num_runs(self) -> int:
        """Runs of weight rows that a tile has."""
        return 2 if self in (Kind.GATED, Kind.ROTARY) else 1


@dataclass(frozen=True)
class Tile:
    block_n: int
    block_m: int
    block_k: int
    num_warps: int
    num_stages: int
    ahead: int = 0  # columns of weights that are asked for before the kernel may read its rows
    early: bool = True  # the next kernel may start when this one does, not when its walk is over
    held: int = 0  # steps whose weights are in registers before the kernel may read its rows
    segments: int = 1  # runs of columns that are added up side by side, by a warp each

    def pieces(self, kind: Kind, num_in: int, itemsize: int) -> int:
        """How many pieces of each weight row are asked for early, one by each thread."""
        if not self.ahead or itemsize > 2 or self.piece_len(kind, num_in) * itemsize % 16:
            return 0
        return 32 * self.num_warps // (self.block_n * kind.num_runs)

    def piece_len(self, kind: Kind, num_in: int) -> int:
        rows = self.block_n * kind.num_runs
        return min(self.ahead, num_in) * rows // (32 * self.num_warps)


# For few rows, found by measuring whole passes on an H200 (docs/gpu.md). Products of many tiles:
# several warps share a tile's weight rows, and K is one run.
_ONE_RUN: Final = {
    Kind.GATED: Tile(64, 8, 128, 4, 5, early=False),
    Kind.PLAIN: Tile(64, 8, 256, 4, 3),
}
# Where no longer step divides the columns.
_SHORT: Final = {
    Kind.ROTARY: Tile(16, 8, 64, 1, 8, ahead=512),
    Kind.GATED: Tile(16, 8, 64, 1, 9, ahead=512, early=False),
    Kind.RESIDUAL: Tile(16, 8, 64, 1, 9, ahead=512),
    Kind.PLAIN: Tile(64, 8, 64, 4, 8),
}
# For 16 rows and more.
_MORE_ROWS: Final = {
    Kind.GATED: Tile(64, 16, 128, 4, 4, early=False),
    Kind.PLAIN: Tile(64, 16, 128, 4, 3),
}
_MORE_ROWS_SHORT: Final = {
    Kind.ROTARY: Tile(16, 16, 64, 1, 8),
    Kind.GATED: Tile(16, 16, 64, 1, 8),
    Kind.RESIDUAL: Tile(16, 16, 64, 1, 8),
    Kind.PLAIN: Tile(64, 16, 64, 4, 6),
}


def residual_columns(num_out: int, num_in: int) -> int:
    """Columns whose squares are added up together: those of a tile. Long products have tiles for
    all multiprocessors alike."""
    sizes = (16, 24, 32) if num_in > _LONG else (16,)
    return next((n for n in sizes if num_out <= NUM_MULTIPROCESSORS * n), RESIDUAL_COLUMNS)


def num_segments(kind: Kind, num_in: int, itemsize: int, group: int) -> int:
    """Runs of columns that a product adds up side by side, each of whole groups."""
    if group:
        most = 8 if kind is Kind.RESIDUAL else 4
    elif itemsize == 4 or num_in < _SEGMENTED or kind in _ONE_RUN:
        return 1
    else:
        most = 4
    unit = group or 64
    return next(n for n in (8, 4, 2, 1) if n <= most and num_in % (unit * n) == 0)


def block_m(num_rows: int, itemsize: int) -> int:
    if itemsize == 4:
        return 16
    size, largest = 8, 128
    while size < num_rows and size < largest:
        size *= 2
    return size


def tile_for(
    kind: Kind, num_out: int, num_in: int, num_rows: int, itemsize: int, group: int = 0
) -> Tile:
    """For a matrix [num_out, num_in]; `block_k` counts the columns of all segments."""
    rows = block_m(num_rows, itemsize)
    if itemsize == 4 and not group:
        return Tile(_columns(kind, num_out, num_in, 16), rows, 32, 4, 2)
    segments = num_segments(kind, num_in, itemsize, group)
    if group:
        return _packed(kind, num_out, num_in, min(rows, 16), segments, group)
    if segments > 1:
        return _segmented(kind, num_out, num_in, min(rows, 64 // kind.num_runs), segments)
    if rows >= _WIDE:
        return Tile(_columns(kind, num_out, num_in, 64), rows, 64, 4, 3)
    tile = (_ONE_RUN if rows == 8 else _MORE_ROWS).get(kind)
    if tile is None or num_in % tile.block_k:
        tile = (_SHORT if rows == 8 else _MORE_ROWS_SHORT)[kind]
    return replace(tile, block_m=rows, block_n=_columns(kind, num_out, num_in, tile.block_n))


def _columns(kind: Kind, num_out: int, num_in: int, otherwise: int) -> int:
    """A power of two that has room for a tile's columns."""
    if kind is not Kind.RESIDUAL:
        return otherwise
    return 16 if residual_columns(num_out, num_in) == 16 else 32


def _segmented(kind: Kind, num_out: int, num_in: int, rows: int, segments: int) -> Tile:
    """A warp for each segment."""
    columns, run = _columns(kind, num_out, num_in, 16), num_in // segments
    step = 128 if run % 128 == 0 else 64
    if rows > 8:
        return Tile(
            columns, rows, 64 * segments, segments, 3 if rows < 64 else 2, segments=segments
        )
    if kind is Kind.RESIDUAL and num_in <= _LONG:  # the weights come while attention is under way
        held = run // step
        return Tile(
            columns, rows, step * segments, segments, 2, early=False, held=held, segments=segments
        )
    if kind is Kind.RESIDUAL:
        stages = 4 * 128 // step
        return Tile(
            columns, rows, step * segments, segments, stages, early=False, segments=segments
        )
    if num_out > 2 * 16 * NUM_MULTIPROCESSORS:
        step = 64  # so that two tiles share a multiprocessor
    return Tile(
        columns, rows, step * segments, segments, 3 if step == 128 else 4, segments=segments
    )


def _packed(kind: Kind, num_out: int, num_in: int, rows: int, segments: int, group: int) -> Tile:
    """Whole numbers; a step takes one group of each segment."""
    columns = _columns(kind, num_out, num_in, {Kind.GATED: 32, Kind.PLAIN: 64}.get(kind, 16))
    stages = 3 if rows == 8 else 2
    early = kind in (Kind.ROTARY, Kind.PLAIN)
    return Tile(columns, rows, group * segments, segments, stages, early=early, segments=segments)
