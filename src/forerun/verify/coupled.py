"""Coupled acceptance, the default: same noise, same tokens, with or without speculation.

The target's token at position t is argmax(logit + gumbel(seed, t, token)). It does not depend on
the proposal, so speculation cannot change it. The literature knows this as drafter-invariant
speculative decoding (Daliri, Musco, Suresh 2024).
"""

from __future__ import annotations

from collections.abc import Callable

from forerun.sampling import GumbelNoise, Logits, gumbel_argmax
from forerun.types import ROOT, Proposal, Verdict
from forerun.verify.matching import match


def coupled(
    proposal: Proposal,
    logits_at: Callable[[int], Logits],
    noise: GumbelNoise,
    position: int,
) -> Verdict:
    """Judge a proposal whose root's children stand at absolute `position`.

    `logits_at(node)` are the served logits [V] after `node`. At temperature 0 they leave one
    candidate and this is greedy matching.
    """

    def target_token(node: int) -> int:
        depth = 0 if node == ROOT else proposal.tree.depths[node]
        return gumbel_argmax(logits_at(node), noise, position + depth)

    return match(proposal, target_token)
