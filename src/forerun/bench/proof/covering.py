"""Covering samples: every pair of choices appears together in at least one run."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

_NUM_TRIES: Final = 12  # completions compared for each run; more gives fewer runs, slower

Cell = dict[str, Any]
_Pair = tuple[str, int, str, int]  # factor, level of it, another factor, level of that


def covering_cells(factors: Mapping[str, Sequence[Any]], seed: int) -> list[Cell]:
    """Cells that cover every pair of levels of every two factors.

    Greedy: each cell starts from a pair that is still missing and is completed at random several
    times; the completion that covers most is taken.
    """
    rng = random.Random(seed)
    names = sorted(factors)
    missing = _all_pairs(factors, names)
    cells: list[dict[str, int]] = []
    while missing:
        cell = _best_cell(factors, names, missing, rng)
        missing -= _pairs(cell, names)
        cells.append(cell)
    return [{name: factors[name][level] for name, level in cell.items()} for cell in cells]


def _best_cell(
    factors: Mapping[str, Sequence[Any]], names: list[str], missing: set[_Pair], rng: random.Random
) -> dict[str, int]:
    one, level, other, other_level = min(missing)
    fixed = {one: level, other: other_level}
    tries = [_completed(fixed, factors, names, rng) for _ in range(_NUM_TRIES)]
    return max(tries, key=lambda cell: len(_pairs(cell, names) & missing))


def _completed(
    fixed: Mapping[str, int],
    factors: Mapping[str, Sequence[Any]],
    names: list[str],
    rng: random.Random,
) -> dict[str, int]:
    return {name: fixed.get(name, rng.randrange(len(factors[name]))) for name in names}


def _pairs(cell: Mapping[str, int], names: list[str]) -> set[_Pair]:
    return {(a, cell[a], b, cell[b]) for a, b in itertools.combinations(names, 2)}


def _all_pairs(factors: Mapping[str, Sequence[Any]], names: list[str]) -> set[_Pair]:
    return {
        (a, level, b, other)
        for a, b in itertools.combinations(names, 2)
        for level in range(len(factors[a]))
        for other in range(len(factors[b]))
    }
