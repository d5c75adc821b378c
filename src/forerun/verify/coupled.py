"""Coupled acceptance, the default: the same tokens with and without speculation.

The target's token at position t is argmax(logit + gumbel(seed, t, token)). It does not depend on
the proposal, so speculation cannot change it. The literature knows this as drafter-invariant
speculative decoding (Daliri, Musco, Suresh 2024).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from forerun.sampling import GumbelNoise, Logits, gumbel_argmax
from forerun.types import ROOT, Proposal, Verdict
from forerun.verify.matching import Drawn, match, none_drawn

NoiseT = TypeVar("NoiseT", bound=GumbelNoise)


def coupled(
    proposal: Proposal,
    logits_at: Callable[[int], Logits],
    noise: NoiseT,
    position: int,
    choose: Callable[[Logits, NoiseT, int], int] = gumbel_argmax,
    drawn: Drawn = none_drawn,
) -> Verdict:
    """Judge a proposal whose first guesses are for absolute `position`.

    `logits_at(node)` are the served logits [V] after `node`. At temperature 0 they leave one
    candidate, and this is greedy matching. `choose` is `gumbel_argmax`, or a kernel's equal of it;
    `drawn` gives its results for nodes whose tokens were drawn with the pass.
    """

    def target_token(node: int) -> int:
        depth = 0 if node == ROOT else proposal.tree.depths[node]
        return choose(logits_at(node), noise, position + depth)

    return match(proposal, target_token, drawn)
