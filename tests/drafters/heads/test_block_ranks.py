"""The tree of a block, compared with all possible paths."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from forerun.drafters.base import Budget
from forerun.drafters.growing import grow_likeliest
from forerun.drafters.heads.kinds.block_ranks import BlockRanks, has_ranks
from forerun.sampling import Noise
from forerun.types import Acceptance, SamplingParams

V, DEPTH, RANK = 7, 3, 4
TOKENS = np.array([2, 3, 5, 8, 9, 20, 21])


def head(rng: np.random.Generator) -> Any:
    """A head with only what ranks use."""
    out, table = rng.standard_normal((2, V, RANK)).astype(np.float32)

    def markov_step(guess: int, gate: Any) -> Any:
        return (1 + gate) * table[int(np.searchsorted(TOKENS, guess))]

    return SimpleNamespace(tokens=TOKENS, markov_out=out, markov_step=markov_step)


def request(temperature: float, **options: Any) -> Any:
    params = SamplingParams(temperature=temperature, **options)
    prompt, noise = [1] * 11, Noise(4)
    return SimpleNamespace(
        params=params, prompt=prompt, tokens=prompt, output=[], grammar=None, noise=noise
    )


@pytest.mark.parametrize("temperature", [0, 0.6])
@pytest.mark.parametrize("num", [1, 4, V])
def test_a_tree_holds_the_likeliest_of_all_paths(temperature: float, num: int) -> None:
    rng = np.random.default_rng(3)
    ours, asked = head(rng), request(temperature)
    logits = rng.standard_normal((DEPTH, V)).astype(np.float32)
    gates = rng.standard_normal((DEPTH, RANK)).astype(np.float32)
    sharpness = 1 / temperature if temperature else 1.0
    chances: dict[tuple[int, ...], float] = {(): 0.0}
    for place in range(DEPTH):
        for path in itertools.product(TOKENS.tolist(), repeat=place):
            row = logits[place] * sharpness
            if temperature:
                row = row + asked.noise.gumbel(11 + place, TOKENS)
            if path:
                step = ours.markov_step(path[-1], gates[place])
                row = row + sharpness * (ours.markov_out @ step)
            row = row - np.log(np.exp(row).sum())
            chances |= {
                (*path, int(token)): chances[path] + float(x)
                for token, x in zip(TOKENS, row, strict=True)
            }
    first = sorted((path for path in chances if len(path) == 1), key=lambda path: -chances[path])
    open_ = [path for path in chances if path and path[:1] in first[:num]]
    due = sorted(open_, key=lambda path: -chances[path])[: DEPTH * num]
    tree = grow_likeliest(Budget(DEPTH, num), BlockRanks(ours, asked, logits, gates))
    paths = [tuple(tree.tokens[at] for at in tree.tree.path_to(node)) for node in range(len(tree))]
    assert paths == due


def test_guesses_that_are_drawn_or_whose_logits_change_have_none() -> None:
    assert has_ranks(request(0))
    assert has_ranks(request(0.8))
    assert not has_ranks(request(0.8, acceptance=Acceptance.REJECTION))
    assert not has_ranks(request(0.8, top_k=5))
    assert not has_ranks(request(0, repetition_penalty=1.2))
    assert not has_ranks(request(0, min_tokens=2))
