"""Lenient acceptance (Leviathan et al. 2023, A.5): LOSSY, off unless asked for by name.

It accepts more guesses, and in exchange it only bounds the law instead of keeping it: with lenience
l no token is emitted with probability above p/l. At temperature 0, where p is one-hot, it uses the
distribution before the argmax, and accepts a guess that is nearly as probable as the best token.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from forerun.errors import InvalidOption
from forerun.sampling import Probs, UniformNoise
from forerun.types import ROOT, Proposal, Verdict, check_probs
from forerun.verify.rejection import walk


def lenient(
    proposal: Proposal,
    probs_at: Callable[[int], Probs],
    noise: UniformNoise,
    round_idx: int,
    lenience: float,
) -> Verdict:
    """Judge a proposal by rejection with l·q in the test: accept x iff u < p(x) / (l·q(x))."""
    _check(lenience)
    return walk(proposal, probs_at, noise, round_idx, lenience)


def lenient_greedy(
    proposal: Proposal, probs_at: Callable[[int], Probs], lenience: float
) -> Verdict:
    """Judge a proposal at temperature 0: accept the best guess x if p(x) ≥ l·max(p), else emit the
    argmax.

    `probs_at(node)` is p before it is made one-hot.
    """
    _check(lenience)
    node = ROOT
    while True:
        probs_p = probs_at(node)
        check_probs(probs_p)
        guesses = {proposal.tokens[child]: child for child in proposal.tree.children(node)}
        best = max(sorted(guesses), key=probs_p.__getitem__, default=None)
        if best is None or not probs_p[best] >= lenience * probs_p.max():
            return Verdict.reached(proposal, node, int(np.argmax(probs_p)))
        node = guesses[best]


def bound(lenience: float) -> float:
    """Return by which factor, at most, a token's probability may exceed its true one."""
    _check(lenience)
    return 1 / lenience


def _check(lenience: float) -> None:
    if not 0 < lenience <= 1:
        raise InvalidOption(f"lenience={lenience!r} is not allowed; it must be in (0, 1].")
