"""Tokens drawn within the pass are verified by the same walk, without asking for logits."""

from __future__ import annotations

import random

import numpy as np
import pytest

from forerun.sampling import Noise
from forerun.types import ROOT, Origin, Proposal, ProposalBuilder, Verdict
from forerun.verify import coupled, greedy, match_drawn

CHAIN = (3, 1, 2, 1)


def plain_walk(proposal: Proposal, tokens: list[int]) -> Verdict:
    """Accept, below each node, the guess that equals the token drawn there, `tokens[node + 1]`."""
    guesses = list(zip(proposal.tree.parents, proposal.tokens, strict=True))
    node, path = ROOT, list[int]()
    while (node, tokens[node + 1]) in guesses:
        node = guesses.index((node, tokens[node + 1]))
        path.append(node)
    accepted = [proposal.tokens[accepted] for accepted in path]
    is_leaf = node not in proposal.tree.parents
    final = (Origin.BONUS if is_leaf else Origin.RECOVERED) if guesses else Origin.PLAIN
    return Verdict(tuple(path), (*accepted, tokens[node + 1]), final)


def random_tree(rng: random.Random, num_draws: int) -> Proposal:
    builder = ProposalBuilder()
    for _ in range(num_draws):
        builder.add(rng.randrange(ROOT, len(builder)), rng.randrange(3))
    return builder.build()


@pytest.mark.parametrize("num_accepted", range(len(CHAIN) + 1))
def test_a_chain_is_accepted_up_to_the_first_other_token(num_accepted: int) -> None:
    behind = [*CHAIN[:num_accepted], 9, *CHAIN[num_accepted:]]  # later matches do not count
    verdict = match_drawn(Proposal.chain(CHAIN), behind[: len(CHAIN) + 1])
    assert verdict.path == tuple(range(num_accepted))
    assert verdict.tokens == (*CHAIN[:num_accepted], 9)
    is_whole = num_accepted == len(CHAIN)
    assert verdict.final is (Origin.BONUS if is_whole else Origin.RECOVERED)


def test_without_guesses_the_one_token_is_plain() -> None:
    assert match_drawn(Proposal.empty(), [5]) == Verdict((), (5,), Origin.PLAIN)


def test_chains_and_trees_are_walked_as_a_plain_walk_does() -> None:
    rng, depths, num_chains = random.Random(1), set[int](), 0
    for num_draws in [*range(8)] * 50:
        proposal = random_tree(rng, num_draws)
        tokens = [rng.randrange(3) for _ in range(len(proposal) + 1)]
        verdict = match_drawn(proposal, tokens)
        assert verdict == plain_walk(proposal, tokens)
        depths.add(len(verdict.path))
        num_chains += proposal.tree.is_chain
    assert depths >= {0, 1, 2, 3}
    assert 50 < num_chains < 200


@pytest.mark.parametrize("acceptance", ["greedy", "coupled"])
def test_logits_are_asked_for_only_where_no_token_was_drawn(acceptance: str) -> None:
    """What was drawn decides, even where the logits would say something else."""
    drawn, asked = {ROOT: 3, 0: None, 1: 2, 2: None}, list[int]()

    def logits_at(node: int) -> np.ndarray:
        asked.append(node)
        return np.array([-np.inf, 0.0, -np.inf, -np.inf])  # token 1

    proposal = Proposal.chain(CHAIN[:3])
    if acceptance == "greedy":
        verdict = greedy(proposal, logits_at, drawn.__getitem__)
    else:
        verdict = coupled(proposal, logits_at, Noise(2), 7, drawn=drawn.__getitem__)
    assert asked == [0, 2]
    assert verdict == Verdict((0, 1, 2), (3, 1, 2, 1), Origin.BONUS)
