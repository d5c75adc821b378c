"""Which tiles a product is cut into.

Only `residual_columns`, `num_segments` and `Tile.by_sum` decide bits, and none of them depends on
the number of rows. The rest decides speed alone: every tile walks K in the same order
(docs/gpu.md).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, NamedTuple

NUM_MULTIPROCESSORS: Final = 132  # of an H100 or H200
SHARED_BYTES: Final = 227 * 1024  # shared memory that a block may have there
RESIDUAL_COLUMNS: Final = 16  # of a tile whose squares are summed for the next norm
_WIDE: Final = 64  # rows; from here on arithmetic counts as well as bytes
_LONG: Final = 4096  # columns
_FEW: Final = 80  # tiles; fewer do not keep the memory busy
_SMALL: Final = 1024  # rows of a matrix; such a product leaves room for the next kernel beside it
_SEGMENTED_FROM: Final = 1024  # columns; shorter sums take less time than the memory
_MOST_HELD: Final = 768  # columns of a segment: as many weights as a warp has registers for


class Kind(Enum):
    PLAIN = "plain"
    GATED = "gated"
    ROTARY = "rotary"
    RESIDUAL = "residual"

    @property
    def num_runs(self) -> int:
        """Runs of weight rows in a tile."""
        return 2 if self in (Kind.GATED, Kind.ROTARY) else 1


@dataclass(frozen=True)
class Tile:
    block_n: int
    block_m: int
    block_k: int
    num_warps: int
    num_stages: int
    ahead: int = 0  # columns of weights that are prefetched before the kernel may read its rows
    early: bool = True  # the next kernel may start with this one, not only after its walk
    held: int = 0  # steps whose weights are in registers before the kernel may read its rows
    segments: int = 1  # runs of columns that are added up in parallel, by a warp each
    groups: int = 1  # groups of columns, each with one sum of squares
    by_sum: bool = False  # the offset of bytes is subtracted from sums, not from each byte

    def pieces(self, kind: Kind, num_in: int, itemsize: int) -> int:
        """Return how many pieces of each weight row are prefetched, one by each thread.

        It is 0 unless rows and pieces are multiples of 16 bytes.
        """
        lengths = (num_in, self.piece_len(kind, num_in))
        if not self.ahead or itemsize > 2 or any(length * itemsize % 16 for length in lengths):
            return 0
        return 32 * self.num_warps // (self.block_n * kind.num_runs)

    def piece_len(self, kind: Kind, num_in: int) -> int:
        rows = self.block_n * kind.num_runs
        return min(self.ahead, num_in) * rows // (32 * self.num_warps)

    def within(self, kind: Kind, shared_bytes: int, weight_bytes: int, row_bytes: int) -> Tile:
        """Return this tile with no more stages than shared memory has room for.

        No bit depends on stages. A walk has one buffer less than stages.
        """
        of_step = self.block_n * kind.num_runs * weight_bytes + self.block_m * row_bytes
        most = 1 + shared_bytes // (self.block_k * of_step)
        return self if self.num_stages <= most else replace(self, num_stages=most)


class Run(NamedTuple):
    """A tile with few columns of the result, which has a warp for each segment of K."""

    step: int  # columns of K in each segment's step
    num_stages: int
    early: bool
    wide: int = 1  # the tile has this × 16 columns, if enough tiles are left


class Packed(NamedTuple):
    """The same for int8 weights, with one group of columns in each segment's step."""

    columns: int  # of the result
    num_stages: int
    early: bool
    held: int = 0  # steps, at most


# Found by measuring whole passes of Llama-3.2-1B and -3B shapes on an H200 (docs/gpu.md).
# Many tiles, whose warps share the weight rows; K is one run. By kind, for 8 rows and for more.
_ONE_RUN: Final = {
    Kind.GATED: (
        Tile(64, 8, 128, 4, 5, early=False),
        Tile(64, 16, 128, 4, 4, ahead=256, early=False),
    ),
    Kind.PLAIN: (Tile(64, 8, 256, 4, 3), Tile(64, 16, 128, 4, 3)),
}
# The same, for columns that the steps above do not divide.
_SHORT: Final = {
    Kind.ROTARY: (Tile(16, 8, 64, 1, 8, ahead=512), Tile(16, 16, 64, 1, 8)),
    Kind.GATED: (Tile(16, 8, 64, 1, 9, ahead=512, early=False), Tile(16, 16, 64, 1, 8)),
    Kind.RESIDUAL: (Tile(16, 8, 64, 1, 9, ahead=512), Tile(16, 16, 64, 1, 8)),
    Kind.PLAIN: (Tile(64, 8, 64, 4, 8), Tile(64, 16, 64, 4, 6)),
}
# Few tiles. By kind, whether K is long (RESIDUAL) or there are many tiles (ROTARY), and rows.
# With many rows, wide tiles read them less often.
SEGMENTED: Final[dict[tuple[Kind, bool, int], Run]] = {
    (Kind.RESIDUAL, False, 8): Run(128, 2, False),
    (Kind.RESIDUAL, False, 16): Run(64, 4, True),
    (Kind.RESIDUAL, False, 32): Run(64, 5, False, wide=2),
    (Kind.RESIDUAL, False, 64): Run(64, 2, True),
    (Kind.RESIDUAL, True, 8): Run(128, 4, False),
    (Kind.RESIDUAL, True, 16): Run(64, 6, False),
    (Kind.RESIDUAL, True, 32): Run(128, 3, False),
    (Kind.RESIDUAL, True, 64): Run(64, 2, False),
    (Kind.ROTARY, False, 8): Run(128, 3, True),
    (Kind.ROTARY, False, 16): Run(64, 4, True),
    (Kind.ROTARY, False, 32): Run(64, 3, True),
    (Kind.ROTARY, True, 8): Run(64, 5, True),
    (Kind.ROTARY, True, 16): Run(64, 3, True),
    (Kind.ROTARY, True, 32): Run(128, 3, True, wide=2),
}
# int8. By kind and whether K is long: segments, `Tile.by_sum`, and the tiles for 8 and 16 rows.
# The first two decide bits.
PACKED: Final[dict[tuple[Kind, bool], tuple[int, bool, Packed, Packed]]] = {
    (Kind.ROTARY, False): (4, False, Packed(8, 3, True), Packed(8, 3, True)),
    (Kind.GATED, False): (4, False, Packed(16, 3, True), Packed(16, 3, True)),
    (Kind.RESIDUAL, False): (8, False, Packed(16, 3, True, held=3), Packed(16, 3, True)),
    (Kind.RESIDUAL, True): (8, True, Packed(16, 3, False), Packed(16, 3, False)),
    (Kind.PLAIN, False): (4, False, Packed(32, 3, True), Packed(32, 2, True)),
}


def residual_columns(num_out: int, num_in: int, group: int) -> int:
    """Return how many columns share a sum of squares: those of a tile.

    If K is long, tiles are so wide that there is one for each multiprocessor at most; a product
    too wide for that has the usual ones.
    """
    sizes = (16, 24, 32) if num_in > _LONG and not group else (16,)
    return next((n for n in sizes if num_out <= NUM_MULTIPROCESSORS * n), RESIDUAL_COLUMNS)


def whole_steps(num_in: int, itemsize: int, group: int) -> int:
    """Return what the columns must be a multiple of, so that no bit depends on the number of rows
    (tests/gpu/products/test_fused_products.py)."""
    if num_in < _SEGMENTED_FROM or (itemsize == 4 and not group):  # any number will do
        return 1
    return 64 if not group and num_in <= _LONG else 128


def whole_norms(width: int, itemsize: int) -> int:
    """The same for the columns that a norm covers: a product's tiles add up their squares."""
    return 1 if width < _SEGMENTED_FROM or itemsize == 4 else 128


def num_segments(kind: Kind, num_in: int, itemsize: int, group: int) -> int:
    """Return how many runs of columns a product adds up in parallel, each of whole groups.

    It is 1 where the columns cannot be divided in this way.
    """
    if group:
        most = PACKED[kind, _is_long(kind, num_in)][0]
    elif itemsize == 4 or num_in < _SEGMENTED_FROM or kind in _ONE_RUN:
        return 1
    else:
        most = 4
    unit = group or 64
    return next((n for n in (8, 4, 2) if n <= most and num_in % (unit * n) == 0), 1)


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
    """Return the tile for a matrix [num_out, num_in]; its `block_k` spans all segments."""
    rows = block_m(num_rows, itemsize)
    segments = num_segments(kind, num_in, itemsize, group)
    if group:
        rows = min(rows, 16)
        _, by_sum, few, more = PACKED[kind, _is_long(kind, num_in)]
        columns, stages, early, most_held = few if rows == 8 else more
        held = min(most_held, num_in // (group * segments))
        tile = Tile(columns, rows, group * segments, segments, stages, 0, early, held, segments)
        tile = replace(tile, by_sum=by_sum)
    elif segments > 1:
        tile = _segmented(kind, num_out, num_in, min(rows, 64 // kind.num_runs), segments)
    elif itemsize == 4:
        tile = Tile(RESIDUAL_COLUMNS, rows, 32, 4, 2)
    elif rows >= _WIDE:
        tile = Tile(RESIDUAL_COLUMNS if kind is Kind.RESIDUAL else 64, rows, 64, 4, 3)
    else:
        usual, short = _ONE_RUN.get(kind), _SHORT[kind]
        at = int(rows > 8)
        tile = short[at] if usual is None or num_in % usual[at].block_k else usual[at]
        tile = replace(tile, block_m=rows)
    if kind is Kind.RESIDUAL:  # a power of two that has room for its columns
        columns = tile.groups * residual_columns(num_out, num_in, group)
        tile = replace(tile, block_n=1 << (columns - 1).bit_length())
    return tile


def _is_long(kind: Kind, num_in: int) -> bool:
    return kind is Kind.RESIDUAL and num_in > _LONG


def _segmented(kind: Kind, num_out: int, num_in: int, rows: int, segments: int) -> Tile:
    run, is_residual = num_in // segments, kind is Kind.RESIDUAL
    tiles = num_out // (RESIDUAL_COLUMNS * kind.num_runs)
    many = num_in > _LONG if is_residual else tiles > NUM_MULTIPROCESSORS
    step, stages, early, wide = SEGMENTED[kind, many, rows]
    if tiles // wide < _FEW:
        wide = 1
    if run % step:
        step, stages = 64, stages * step // 64
    # The product after attention loads its weights while attention runs.
    held = min(run, _MOST_HELD) // step if is_residual and not many and rows == 8 else 0
    early = early or num_out < _SMALL
    columns, block_k = RESIDUAL_COLUMNS * wide, step * segments
    return Tile(columns, rows, block_k, segments, stages, 0, early, held, segments, wide)
