"""Greedy acceptance: a guess is accepted iff it is the target's argmax (Stern et al. 2018)."""

from __future__ import annotations

from collections.abc import Callable

from forerun.sampling import checked_argmax
from forerun.types import FloatArray, Proposal, Verdict
from forerun.verify.matching import Drawn, match, none_drawn


def greedy(
    proposal: Proposal, logits_at: Callable[[int], FloatArray], drawn: Drawn = none_drawn
) -> Verdict:
    """Temperature 0 by itself: the lowest id among equals, no noise, no q."""
    return match(proposal, lambda node: checked_argmax(logits_at(node)), drawn)
