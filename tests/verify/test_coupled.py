"""Promise 2: for any noise and any guesses, coupling emits the tokens of a plain scan."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.sampling import Logits, Noise, gumbel_argmax, gumbel_top, softmax
from forerun.theory.acceptance import beta_coupled
from forerun.types import ROOT, Draw, Origin, Proposal, Tree
from forerun.verify import coupled, greedy, match, rejection
from tests.statistics import FALSE_ALARM_RATE, chi2_p_value

V = 4
MAX_DEPTH = 4
Floats = npt.NDArray[np.float64]


class ArrayNoise:
    """Injected noise: any array at all, ties included."""

    def __init__(self, values: Floats) -> None:
        self.values = values  # [P, V]

    def gumbel(self, position: int, tokens: npt.NDArray[np.int64]) -> Floats:
        return np.asarray(self.values[position, tokens])


class LogitTable:
    """Served logits for every prefix; some tokens excluded, sometimes all but one."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def logits(self, prefix: Sequence[int]) -> Logits:
        rng = np.random.default_rng([self.seed, len(prefix), *prefix])
        row = np.round(rng.normal(size=V), 1)
        row[rng.random(V) < 0.3] = -np.inf
        row[int(rng.integers(V))] = 0.0
        return row


@st.composite
def proposals(draw: st.DrawFn) -> Proposal:
    """Trees of any shape with distinct siblings, up to MAX_DEPTH deep."""
    parents: list[int] = []
    tokens: list[int] = []
    depths: list[int] = []
    for _ in range(draw(st.integers(0, 10))):
        parent = draw(st.integers(ROOT, len(parents) - 1))
        token = draw(st.integers(0, V - 1))
        depth = 1 if parent == ROOT else depths[parent] + 1
        if depth <= MAX_DEPTH and (parent, token) not in zip(parents, tokens, strict=True):
            parents.append(parent)
            tokens.append(token)
            depths.append(depth)
    draws = tuple(Draw(node) for node in range(len(tokens)))
    return Proposal(Tree(tuple(parents)), tuple(tokens), draws)


def plain_scan(table: LogitTable, noise: ArrayNoise | Noise, position: int, n: int) -> list[int]:
    tokens: list[int] = []
    for _ in range(n):
        tokens.append(gumbel_argmax(table.logits(tokens), noise, position + len(tokens)))
    return tokens


@given(proposals(), st.integers(0, 2**32), st.integers(0, 2**32), st.integers(0, 3))
def test_any_guesses_any_noise_same_tokens(
    proposal: Proposal, table_seed: int, noise_seed: int, position: int
) -> None:
    table = LogitTable(table_seed)
    values = np.round(np.random.default_rng(noise_seed).gumbel(size=(12, V)), 1)
    noise = ArrayNoise(values)
    verdict = coupled(
        proposal, lambda node: table.logits(proposal.path_tokens(node)), noise, position
    )
    assert list(verdict.tokens) == plain_scan(table, noise, position, len(verdict.tokens))
    assert verdict.tokens[:-1] == tuple(proposal.tokens[node] for node in verdict.path)
    last = verdict.path[-1] if verdict.path else ROOT
    assert proposal.child_with_token(last, verdict.tokens[-1]) is None, "stopped too early"


@given(proposals(), st.integers(0, 2**32))
def test_greedy_is_the_special_case_of_both(proposal: Proposal, seed: int) -> None:
    table = LogitTable(seed)

    def one_hot(node: int) -> Logits:
        row = table.logits(proposal.path_tokens(node))
        best = int(np.argmax(row))
        return np.where(np.arange(V) == best, 0.0, -np.inf)

    expected = greedy(proposal, lambda node: table.logits(proposal.path_tokens(node)))
    noise = Noise(seed)
    assert coupled(proposal, one_hot, noise, 5) == expected
    assert rejection(proposal, lambda node: softmax(one_hot(node)), noise, 0) == expected


def test_origins() -> None:
    chain = Proposal.chain([1, 2])
    truth = {ROOT: 1, 0: 2, 1: 3}
    assert match(chain, truth.__getitem__).origins == (
        Origin.ACCEPTED,
        Origin.ACCEPTED,
        Origin.BONUS,
    )
    assert match(chain, {ROOT: 0}.__getitem__).origins == (Origin.RECOVERED,)
    assert match(Proposal.empty(), {ROOT: 0}.__getitem__).origins == (Origin.PLAIN,)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_acceptance_has_its_closed_form(seed: int) -> None:
    """10,000 positions of the real noise; binomial χ² at the stated false-alarm rate."""
    rng = np.random.default_rng(seed)
    p, q = rng.dirichlet(np.ones(V), size=2)
    num, real = 10_000, Noise(seed)
    noise = ArrayNoise(np.stack([real.gumbel(t, np.arange(V)) for t in range(num)]))
    hits = sum(
        gumbel_argmax(np.log(p), noise, t) == gumbel_argmax(np.log(q), noise, t) for t in range(num)
    )
    rate = beta_coupled(p, q)
    assert rate <= np.minimum(p, q).sum() + 1e-12
    assert chi2_p_value([hits, num - hits], [num * rate, num * (1 - rate)]) > FALSE_ALARM_RATE


def test_siblings_by_shared_noise_raise_acceptance() -> None:
    rng = np.random.default_rng(0)
    p, q = rng.dirichlet(np.ones(8), size=2)
    noise = Noise(1)
    held = np.zeros(3)
    for t in range(500):
        token = gumbel_argmax(np.log(p), noise, t)
        guesses = gumbel_top(np.log(q), noise, t, 3, np.arange(8))
        held += [token in guesses[:k] for k in (1, 2, 3)]
    assert held[0] < held[1] < held[2]
