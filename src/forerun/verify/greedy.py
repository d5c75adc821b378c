"""Greedy acceptance: a guess is accepted iff it is the target's argmax (Stern et al. 2018)."""

from __future__ import annotations

from collections.abc import Callable

from forerun.sampling import checked_argmax
from forerun.types import FloatArray, Proposal, Verdict
from forerun.verify.matching import Drawn, match, none_drawn


def greedy(
    proposal: Proposal, logits_at: Callable[[int], FloatArray], drawn: Drawn = none_drawn
) -> Verdict:
    """Judge a proposal at temperature 0: ties go to the lowest id, no noise and no q are needed.

    `logits_at(node)` [V] need only have the right argmax; `drawn` is as for `coupled`.
    """
    return match(proposal, lambda node: checked_argmax(logits_at(node)), drawn)
