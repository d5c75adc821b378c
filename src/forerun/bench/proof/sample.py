"""Which runs a proof makes: few enough to be run, and no pair of choices left out.

Two parts, one list. Every pair among drafter, branches, sampling and depth appears together; and
every prompt meets every drafter. Beyond what the first part needs, small proposals are drawn more
often (weight 1/(depth² · branches)): a big one costs many rows of a pass and mostly fails early.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from forerun.bench.proof.covering import covering_cells

BRANCHES: Final = (1, 2)
_PER_PROMPT: Final = 2  # sampling settings of one prompt: each needs a plain run of its own


@dataclass(frozen=True)
class Run:
    prompt: str
    method: str
    num_branches: int
    sampling: str
    depth: int


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
        """Two neighbours in a list of complementary pairs; all, where there is one prompt."""
        if len(self.prompts) == 1 or len(self.samplings) <= _PER_PROMPT:
            return tuple(self.samplings)
        pairs = _complementary_pairs(self.samplings)
        return pairs[self.prompts.index(prompt) % len(pairs)]


def sample_runs(choices: Choices, seed: int, min_runs: int = 0) -> list[Run]:
    """At least `min_runs` of them; the same seed, the same runs."""
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
    }
    return covering_cells(factors, seed)


def _placed(
    cell: dict[str, Any], choices: Choices, unmet: dict[str, list[str]], rng: Random
) -> Run:
    """On a prompt that this drafter has not met yet, if one uses this sampling."""
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
    return Run(prompt, method, num_branches, rng.choice(choices.samplings_of(prompt)), depth)


def _complementary_pairs(samplings: Sequence[str]) -> list[tuple[str, ...]]:
    """All pairs, each followed by one that shares nothing with it, so that two cover four."""
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
