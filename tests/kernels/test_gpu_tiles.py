"""The tile sizes of matrix products on GPUs; choosing them needs no GPU."""

from __future__ import annotations

import runpy
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import forerun

# Loaded by its path, because importing the package needs torch.
TILES: dict[str, Any] = runpy.run_path(
    str(Path(forerun.__file__).parent / "kernels" / "cuda" / "products" / "tiles.py")
)
SHAPES = {"135m": (576, 1536), "1b": (2048, 8192), "3b": (3072, 8192)}
NUM_ROWS = (1, 6, 12, 24, 48, 200)
FORMATS = {"bfloat16": (2, 2, 0), "int8": (1, 2, 64), "float32": (4, 4, 0)}


def chosen(hidden: int, inner: int, _weight_bytes: int, row_bytes: int, group: int) -> Any:
    """Yield the kind and tile of every product of a layer, with every number of rows."""
    kind = TILES["Kind"]
    matrices = {
        kind.ROTARY: (5 * hidden // 3, hidden),
        kind.GATED: (2 * inner, hidden),
        kind.PLAIN: (49152, hidden),
        kind.RESIDUAL: (hidden, inner),
    }
    for (name, (num_out, num_in)), num_rows in product(matrices.items(), NUM_ROWS):
        yield name, TILES["tile_for"](name, num_out, num_in, num_rows, row_bytes, group)


def used(tile: Any, kind: Any, weight_bytes: int, row_bytes: int) -> int:
    of_step = tile.block_n * kind.num_runs * weight_bytes + tile.block_m * row_bytes
    return int((tile.num_stages - 1) * tile.block_k * of_step)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_tiles_are_as_they_were_measured_where_they_fit(
    shape: tuple[int, int], form: tuple[int, int, int]
) -> None:
    for kind, tile in chosen(*shape, *form):
        assert tile.within(kind, TILES["SHARED_BYTES"], *form[:2]) == tile


ALL_FORMATS = FORMATS | {
    f"int8 in groups of {group}, {name}": (1, itemsize, group)
    for group in (32, 64, 128)
    for name, itemsize in (("float16", 2), ("float32", 4))
}


@pytest.mark.parametrize("form", ALL_FORMATS.values(), ids=ALL_FORMATS)
def test_every_size_has_a_tile(form: tuple[int, int, int]) -> None:
    weight_bytes, row_bytes, group = form
    for num_in in range(group or 4, 16400, group or 12):
        for kind, num_rows in product(TILES["Kind"], (1, 9, 17, 33, 65, 129)):
            tile = TILES["tile_for"](kind, 1056, num_in, num_rows, row_bytes, group)
            tile = tile.within(kind, TILES["SHARED_BYTES"], weight_bytes, row_bytes)
            whole = num_in % tile.block_k == 0
            assert whole or (tile.segments == 1 and not group), (kind, num_in, num_rows)
            if tile.pieces(kind, num_in, weight_bytes):
                assert num_in * weight_bytes % 16 == 0, (kind, num_in, num_rows)
            held_len = tile.held * tile.block_k // tile.segments
            assert held_len <= max(768, 6 * group), (kind, num_in, num_rows)


@pytest.mark.parametrize("num_bytes", [99 * 1024, 163 * 1024])
@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_smaller_shared_memories_get_fewer_stages(
    num_bytes: int, form: tuple[int, int, int]
) -> None:
    changed = 0
    for kind, tile in chosen(*SHAPES["3b"], *form):
        within = tile.within(kind, num_bytes, *form[:2])
        assert 1 <= within.num_stages <= tile.num_stages
        assert used(within, kind, *form[:2]) <= num_bytes
        assert within.block_k == tile.block_k  # it decides the order of sums
        changed += within != tile
    assert changed or form != FORMATS["bfloat16"]


@pytest.mark.parametrize("form", ALL_FORMATS.values(), ids=ALL_FORMATS)
def test_what_decides_bits_does_not_see_the_rows(form: tuple[int, int, int]) -> None:
    _, row_bytes, group = form
    for kind, num_in in product(TILES["Kind"], (576, 1536, 2048, 3072, 8192)):
        of_rows = {
            (tile.segments, tile.by_sum)
            for num_rows in NUM_ROWS
            for tile in (TILES["tile_for"](kind, 3072, num_in, num_rows, row_bytes, group),)
        }
        assert len(of_rows) == 1, (kind, num_in, of_rows)
