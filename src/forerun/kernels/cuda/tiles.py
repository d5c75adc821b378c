"""Which tile a product is cut into.

Only `square_groups` and `num_segments` decide bits, and neither sees the number of rows. The rest
is a matter of speed: K is walked in the same order by every tile (docs/gpu.md).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

RESIDUAL_COLUMNS: Final = 16  # of a tile whose squares are summed for the next norm
_WIDE: Final = 64  # from so many rows on, arithmetic counts as well as bytes
_NUM_ALONE: Final = 132  # tiles; the multiprocessors of an H100 or H200
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


# By kind: where every tile has a multiprocessor to itself, where several share one, and where no
# longer step divides the columns. Found by measuring whole passes on an H200 (docs/gpu.md).
_Choice = tuple[Tile, Tile, Tile]
_FEW_ROWS: Final[dict[Kind, _Choice]] = {
    Kind.ROTARY: (
        Tile(16, 8, 512, 2, 4),
        Tile(16, 8, 256, 2, 4),
        Tile(16, 8, 64, 1, 8, ahead=512),
    ),
    Kind.GATED: (
        Tile(64, 8, 128, 4, 4, early=False),
        Tile(64, 8, 128, 4, 4, early=False),
        Tile(16, 8, 64, 1, 9, ahead=512, early=False),
    ),
    Kind.RESIDUAL: (
        Tile(16, 8, 1024, 2, 3, ahead=512, early=False),
        Tile(16, 8, 512, 2, 4, ahead=512, early=False),
        Tile(16, 8, 64, 1, 9, ahead=512),
    ),
    Kind.PLAIN: (Tile(32, 8, 256, 2, 4), Tile(32, 8, 256, 2, 4), Tile(64, 8, 64, 4, 8)),
}
_MORE_ROWS: Final[dict[Kind, _Choice]] = {
    Kind.ROTARY: (Tile(16, 16, 256, 2, 3), Tile(16, 16, 256, 2, 3), Tile(16, 16, 64, 1, 8)),
    Kind.GATED: (
        Tile(64, 16, 128, 4, 4, early=False),
        Tile(64, 16, 128, 4, 4, early=False),
        Tile(16, 16, 64, 1, 8),
    ),
    Kind.RESIDUAL: (
        Tile(16, 16, 512, 2, 3, early=False),
        Tile(16, 16, 512, 2, 3, early=False),
        Tile(16, 16, 64, 1, 8),
    ),
    Kind.PLAIN: (Tile(64, 16, 128, 4, 3), Tile(64, 16, 128, 4, 3), Tile(64, 16, 64, 4, 6)),
}
_ROTARY_OF_32: Final = Tile(16, 32, 256, 4, 3)
_BY_ROWS: Final = {
    8: _FEW_ROWS,
    16: _MORE_ROWS,
    32: _MORE_ROWS | {Kind.ROTARY: (_ROTARY_OF_32, _ROTARY_OF_32, _MORE_ROWS[Kind.ROTARY][2])},
}
# A short sum of few tiles: half the warps, and the next kernel starts at once.
_SHORT: Final = Tile(16, 8, 512, 1, 3, ahead=512)


def square_groups(width: int) -> int:
    """How many sums a row's squares are added up in."""
    return -(-width // RESIDUAL_COLUMNS)


def num_segments(kind: Kind, num_in: int, itemsize: int, group: int) -> int:
    """Runs of columns that a product adds up side by side, each of whole groups."""
    if group:
        most = 8 if kind is Kind.RESIDUAL else 4
    elif itemsize == 4 or num_in < _SEGMENTED:
        return 1
    else:
        most = {Kind.RESIDUAL: 8, Kind.ROTARY: 4}.get(kind, 1)  # the others have many tiles
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
        return Tile(RESIDUAL_COLUMNS, rows, 32, 4, 2)
    segments = num_segments(kind, num_in, itemsize, group)
    if group or segments > 1:
        most = 16 if group else 64 // kind.num_runs  # more would not fit into registers
        return _segmented(num_in, min(rows, most), segments, group)
    if rows >= _WIDE:
        return Tile(RESIDUAL_COLUMNS if kind is Kind.RESIDUAL else 64, rows, 64, 4, 3)
    alone, shared, short = _BY_ROWS[rows][kind]
    tile = alone if num_out <= _NUM_ALONE * alone.block_n * kind.num_runs else shared
    if num_in % tile.block_k:
        tile = short
    ahead = tile.ahead if num_in <= _LONG else 0  # later columns come soon enough
    return replace(tile, block_m=rows, ahead=ahead)


def _segmented(num_in: int, rows: int, segments: int, group: int) -> Tile:
    """A warp for each segment: their number decides bits."""
    run = num_in // segments
    step = group or next(n for n in (128, 64) if run % n == 0 and (n < 128 or segments < 8))
    stages = 4 if rows <= 16 else 2
    return Tile(16, rows, step * segments, segments, stages, segments=segments)
