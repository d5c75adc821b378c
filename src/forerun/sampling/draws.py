"""Drawing tokens: from probabilities with a uniform, or from logits with Gumbel noise."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

import numpy as np

from forerun.sampling.noise import GumbelNoise
from forerun.sampling.softmax import Logits, Probs
from forerun.types import IntArray


def draw(probs: Probs, u: float) -> int:
    """Return the token at quantile `u` in [0, 1), never one of probability 0.

    `bisect` only compares `u < x`, so a test can pass an object that takes both branches.
    """
    reached = np.cumsum(probs)
    return bisect_right(reached / reached[-1], u)


def draw_siblings(
    probs: Probs, uniforms: Iterable[float], *, replace: bool
) -> list[tuple[int, Probs]]:
    """Draw one token per uniform; return each with the q that it was drawn from.

    Without replacement, each draw is from the renormalised rest, and the list ends early when
    nothing is left.
    """
    drawn: list[tuple[int, Probs]] = []
    rest = probs
    for u in uniforms:
        token = draw(rest, u)
        drawn.append((token, rest))
        if replace:
            continue
        rest = rest.copy()
        rest[token] = 0.0
        total = rest.sum()
        if total == 0:
            break
        rest = rest / total
    return drawn


def gumbel_argmax(logits: Logits, noise: GumbelNoise, position: int) -> int:
    """Return argmax(logit + noise): a draw from softmax(logits) that is a function of the position.

    With one candidate (temperature 0) this is the argmax, and no noise is computed.
    """
    candidates: IntArray = np.flatnonzero(logits > -np.inf)
    return gumbel_top(logits[candidates], noise, position, 1, candidates)[0]


def gumbel_top(
    logits: Logits, noise: GumbelNoise, position: int, k: int, tokens: IntArray
) -> list[int]:
    """Return the k best of logit + noise among `tokens` (ascending), best first.

    This is a draw without replacement, by which coupled drafters make siblings. There are fewer
    than k if `tokens` are fewer. Ties go to the lowest id.
    """
    if len(tokens) == 1:
        return [int(tokens[0])]
    noisy = logits + noise.gumbel(position, tokens)
    if k == 1:
        return [int(tokens[np.argmax(noisy)])]
    order = np.argsort(-noisy, kind="stable")[:k]
    return [int(token) for token in tokens[order]]
