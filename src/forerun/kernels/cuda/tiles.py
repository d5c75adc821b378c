"""Which tile a product is cut into.

Only `square_groups` and `num_splits` decide bits, and neither sees the number of rows. The rest is
a matter of speed: K is walked in the same order by every tile (docs/gpu.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

RESIDUAL_COLUMNS: Final = 16  # of a tile whose squares are summed for the next norm
_SHARED_BYTES: Final = 200_000  # of a multiprocessor, for tiles under way
_WIDE: Final = 32  # from so many rows on, arithmetic counts as well as bytes
_NUM_PROGRAMS: Final = 128  # a narrow product has about as many at least
_MAX_SPLITS: Final = 4
_MIN_PART: Final = 384  # columns of a split


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

    def pieces(self, num_in: int, itemsize: int) -> int:
        """Into how many each weight row is cut to be asked for early; 0: it cannot be."""
        pieces = 32 * self.num_warps // self.block_n
        fits = itemsize == 2 and pieces > 0 and num_in * itemsize % (16 * pieces) == 0
        return pieces if fits else 0


def square_groups(width: int) -> int:
    """How many sums a row's squares are added up in."""
    return -(-width // RESIDUAL_COLUMNS)


def num_splits(num_out: int, num_in: int) -> int:
    """Among how many programs the columns of a narrow product are shared."""
    splits = 1
    while (
        2 * splits <= _MAX_SPLITS
        and splits * square_groups(num_out) < _NUM_PROGRAMS // 2
        and num_in % (128 * splits) == 0
        and num_in // (2 * splits) >= _MIN_PART
    ):
        splits *= 2
    return splits


def block_m(num_rows: int, itemsize: int) -> int:
    largest = 128 if itemsize == 2 else 16
    size = 16
    while size < num_rows and size < largest:
        size *= 2
    return size


def tile_for(kind: Kind, part_len: int, num_rows: int, itemsize: int) -> Tile:
    """For products over `part_len` columns."""
    rows = block_m(num_rows, itemsize)
    columns = RESIDUAL_COLUMNS
    if kind is not Kind.RESIDUAL:
        columns = 64 if rows >= _WIDE else {Kind.PLAIN: 32}.get(kind, 16)
    block_k = next((k for k in (256, 128, 64) if part_len % k == 0), 64)
    if rows >= _WIDE:
        block_k = min(block_k, 64)
    if itemsize == 4:
        block_k, columns = 32, min(columns, 32)
    stage_bytes = (kind.num_runs * columns + rows) * block_k * itemsize
    num_stages = max(2, min(4, _SHARED_BYTES // (2 * stage_bytes)))
    num_warps = 4 if rows >= _WIDE else max(1, columns // 16)
    return Tile(columns, rows, block_k, num_warps, num_stages)
