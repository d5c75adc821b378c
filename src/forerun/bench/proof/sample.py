"""The sample of runs that a proof makes: few, but with every pair of choices.

Every pair among drafter, branches, sampling, depth and batch size appears together, and every
prompt runs with every drafter. Runs beyond the covering pairs draw small proposals more often
(weight 1/(depth² · branches)): a big one costs many rows of a pass and mostly fails early.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

BRANCHES: Final = (1, 2)
BATCH_SIZES: Final = (1, 3, 16)  # a batch also cuts prompts into other chunks
_WEIGHTS: Final = (1, 1, 2)  # of the batch sizes: a run in a large batch takes less time
_PER_PROMPT: Final = 2  # sampling settings per prompt: each needs its own plain run
_NUM_TRIES: Final = 12  # completions compared for each run; more gives fewer runs, slower

Cell = dict[str, Any]
_Pair = tuple[str, int, str, int]  # factor, level of it, another factor, level of that


def covering_cells(factors: Mapping[str, Sequence[Any]], seed: int) -> list[Cell]:
    """Return cells that cover every pair of levels of every two factors.

    Greedy: each cell starts from a missing pair and is completed at random several times; the
    completion that covers most missing pairs is taken.
    """
    rng = Random(seed)
    names = sorted(factors)
    missing = _all_pairs(factors, names)
    cells: list[dict[str, int]] = []
    while missing:
        cell = _best_cell(factors, names, missing, rng)
        missing -= _pairs(cell, names)
        cells.append(cell)
    return [{name: factors[name][level] for name, level in cell.items()} for cell in cells]


def _best_cell(
    factors: Mapping[str, Sequence[Any]], names: list[str], missing: set[_Pair], rng: Random
) -> dict[str, int]:
    one, level, other, other_level = min(missing)
    fixed = {one: level, other: other_level}
    tries = [_completed(fixed, factors, names, rng) for _ in range(_NUM_TRIES)]
    return max(tries, key=lambda cell: len(_pairs(cell, names) & missing))


def _completed(
    fixed: Mapping[str, int],
    factors: Mapping[str, Sequence[Any]],
    names: list[str],
    rng: Random,
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


@dataclass(frozen=True)
class Run:
    prompt: str
    method: str
    num_branches: int
    sampling: str
    depth: int
    batch_size: int


@dataclass(frozen=True)
class Choices:
    prompts: Sequence[str]
    methods: Sequence[str]
    samplings: Sequence[str]
    max_depth: int

    @property
    def depths(self) -> range:
        return range(1, self.max_depth + 1)

    def samplings_of(self, prompt: str) -> tuple[str, ...]:
        """Return one of the complementary pairs of settings; for a single prompt, all settings."""
        if len(self.prompts) == 1 or len(self.samplings) <= _PER_PROMPT:
            return tuple(self.samplings)
        pairs = _complementary_pairs(self.samplings)
        return pairs[self.prompts.index(prompt) % len(pairs)]


def sample_runs(choices: Choices, seed: int, min_runs: int = 0) -> list[Run]:
    """Return at least `min_runs` runs; the same seed gives the same runs."""
    rng = Random(seed)
    unmet = {method: list(choices.prompts) for method in choices.methods}
    for prompts in unmet.values():
        rng.shuffle(prompts)
    runs = [_placed(cell, choices, unmet, rng) for cell in _pair_cells(choices, seed)]
    runs += [_drawn(p, m, choices, rng) for m, prompts in unmet.items() for p in prompts]
    while len(runs) < min_runs:
        one = _drawn(rng.choice(choices.prompts), rng.choice(choices.methods), choices, rng)
        runs.append(one)
    return runs


def _pair_cells(choices: Choices, seed: int) -> list[dict[str, Any]]:
    factors = {
        "method": choices.methods,
        "num_branches": BRANCHES,
        "sampling": choices.samplings,
        "depth": choices.depths,
        "batch_size": BATCH_SIZES,
    }
    return covering_cells(factors, seed)


def _placed(
    cell: dict[str, Any], choices: Choices, unmet: dict[str, list[str]], rng: Random
) -> Run:
    """Place the cell on a prompt that its drafter has not run yet, if one uses its sampling."""
    fitting = [p for p in choices.prompts if cell["sampling"] in choices.samplings_of(p)]
    unmet_here = unmet[cell["method"]]
    prompt = next((p for p in unmet_here if p in fitting), None)
    if prompt is None:
        return Run(rng.choice(fitting), **cell)
    unmet_here.remove(prompt)
    return Run(prompt, **cell)


def _drawn(prompt: str, method: str, choices: Choices, rng: Random) -> Run:
    (depth,) = rng.choices(choices.depths, [1 / depth**2 for depth in choices.depths])
    (num_branches,) = rng.choices(BRANCHES, [1 / num for num in BRANCHES])
    sampling = rng.choice(choices.samplings_of(prompt))
    (batch_size,) = rng.choices(BATCH_SIZES, _WEIGHTS)
    return Run(prompt, method, num_branches, sampling, depth, batch_size)


def _complementary_pairs(samplings: Sequence[str]) -> list[tuple[str, ...]]:
    """Return all pairs, each followed by a disjoint one if possible, so that two cover four."""
    pairs = list(itertools.combinations(samplings, _PER_PROMPT))
    ordered: list[tuple[str, ...]] = []
    while pairs:
        first = pairs.pop(0)
        ordered.append(first)
        partner = next((pair for pair in pairs if not set(pair) & set(first)), None)
        if partner is not None:
            pairs.remove(partner)
            ordered.append(partner)
    return ordered
