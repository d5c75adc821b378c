"""Rejection acceptance: exact in law, with more guesses accepted than coupling allows.

At each node the guesses below it are tried in the order drawn, each against its own q: accept x
with probability min(1, p(x)/q(x)); on a miss, go on with norm(max(0, p − q)) in place of p
(Leviathan et al. 2023; for siblings Miao et al. 2024, SpecInfer). A chain has one try per node,
and K siblings have K tries.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from forerun.errors import InvalidProposal
from forerun.sampling import Probs, Stream, UniformNoise, draw
from forerun.types import ROOT, Draw, Proposal, Verdict, check_probs


def rejection(
    proposal: Proposal,
    probs_at: Callable[[int], Probs],
    noise: UniformNoise,
    round_idx: int,
) -> Verdict:
    """Judge a proposal; the emitted tokens have the target's law.

    `probs_at(node)` returns p [V] after `node`; it is called only along the accepted path.
    """
    return walk(proposal, probs_at, noise, round_idx, lenience=1.0)


def walk(
    proposal: Proposal,
    probs_at: Callable[[int], Probs],
    noise: UniformNoise,
    round_idx: int,
    lenience: float,
) -> Verdict:
    """Walk down the tree until no guess is accepted. `lenience` below 1 scales q in the test down,
    which is lossy."""
    node = ROOT
    while True:
        probs_p = probs_at(node)
        check_probs(probs_p)
        child, probs_p = _try_guesses(proposal, node, probs_p, noise, round_idx, lenience)
        if child is None:
            token = draw(probs_p, noise.uniform(Stream.FINAL, round_idx, 0))
            return Verdict.reached(proposal, node, token)
        node = child


def _try_guesses(
    proposal: Proposal,
    node: int,
    probs_p: Probs,
    noise: UniformNoise,
    round_idx: int,
    lenience: float,
) -> tuple[int | None, Probs]:
    """Return the first guess below `node` that is accepted, or None, and the p that is left: after
    misses, the residual to sample from."""
    for draw_idx, guess in proposal.draws_below(node):
        token = proposal.tokens[guess.node]
        probs_q = law_of(guess, token, len(probs_p))
        u = noise.uniform(Stream.TEST, round_idx, draw_idx)
        if u < probs_p[token] / (lenience * probs_q[token]):
            return guess.node, probs_p
        probs_p = residual(probs_p, probs_q)
    return None, probs_p


def law_of(guess: Draw, token: int, vocab_size: int) -> Probs:
    """Return the q [V] that a guess was drawn from: a point mass if it was picked."""
    if guess.probs_q is None:
        if token >= vocab_size:
            raise InvalidProposal(f"token {token} was guessed; ids end at {vocab_size - 1}.")
        point = np.zeros(vocab_size)
        point[token] = 1.0
        return point
    if len(guess.probs_q) != vocab_size:
        raise InvalidProposal(f"q has {len(guess.probs_q)} entries and p {vocab_size}; pad q.")
    return guess.probs_q.astype(np.float64, copy=False)


def residual(probs_p: Probs, probs_q: Probs) -> Probs:
    """Return norm(max(0, p − q)), or p itself if it equals q up to rounding and nothing is left."""
    left: Probs = np.maximum(probs_p - probs_q, 0.0)
    total = left.sum()
    return left / total if total > 0 else probs_p
