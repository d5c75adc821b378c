"""Temperature, then top-k, top-p and min-p, which keep a few tokens of a row.

Each step keeps a run of the best tokens, so a lower bound excludes most tokens before anything is
computed for them. The result is what the definition gives on the whole row, bit for bit, including
ties at every edge.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from forerun.sampling.largest import largest_bound
from forerun.sampling.softmax import Logits, WeightSum, softmax
from forerun.sampling.softmax import weight_sum as closest_weight_sum
from forerun.types import FloatArray, IntArray, SamplingParams

# Depths in nats below the best token: only tokens down to a depth are looked at, and sorted. Each
# depth is tried in turn until one suffices.
_DEPTHS: Final = (9.0, 14.0)
_SORTED: Final = (5.0, 8.0, 11.0, math.inf)  # depths
_SLACK: Final = 1e-9  # relative; more than the rounding error of float64 sums and quotients


def truncated(
    logits: FloatArray, top: float, params: SamplingParams, weight_sum: WeightSum
) -> Logits:
    """Return (logits − top) / temperature [V] of the kept tokens, −inf elsewhere.

    `top` is the largest logit.
    """
    row = _Row(logits, top, params.temperature)
    least = float(np.log(params.min_p)) if params.min_p else -math.inf
    kept = _first_step(row, params, least, weight_sum)
    if params.top_k and params.top_p < 1:
        kept = kept.only(_nucleus(kept.logits, params.top_p))
    if params.min_p:
        kept = kept.only(np.flatnonzero(kept.logits >= least))  # relative to the best, which is 0
    served = np.full(len(logits), -np.inf)
    served[kept.tokens] = kept.logits
    return served


@dataclass(frozen=True)
class _Kept:
    """Some tokens by ascending id, with served logits: the best is 0, none is −inf."""

    tokens: IntArray
    logits: Logits

    def only(self, chosen: IntArray) -> _Kept:
        return _Kept(self.tokens[chosen], self.logits[chosen])


@dataclass(frozen=True)
class _Row:
    """A row of logits before temperature, float32 or float64."""

    logits: FloatArray
    top: float
    temperature: float

    def reaching(self, bound: float) -> _Kept:
        """Return all tokens whose logit reaches `bound`, or may be equal to it once served."""
        tokens = np.flatnonzero(self.logits >= self.cut(bound))
        with np.errstate(over="ignore"):  # an overflow gives −inf, as it should
            kept = (self.logits[tokens].astype(np.float64) - self.top) / self.temperature
        return _Kept(tokens, kept).only(np.flatnonzero(kept > -np.inf))

    def cut(self, bound: float) -> np.floating[Any]:
        """Return a number below `bound` by more than rounding can make equal, in float32 too."""
        rounding = 1e-6 * (abs(self.top) + abs(bound)) + 1e-300 * self.temperature
        kind = self.logits.dtype
        lowest: np.floating[Any] = kind.type(max(bound - rounding, float(np.finfo(kind).min)))
        return lowest

    def within(self, depth: float) -> _Kept:
        """Return all tokens whose served logit is at least −depth, and perhaps some others."""
        return self.reaching(self.top - depth * self.temperature)


def _first_step(row: _Row, params: SamplingParams, least: float, weight_sum: WeightSum) -> _Kept:
    if params.top_k:
        kept = row.reaching(largest_bound(row.logits, params.top_k))
        return kept.only(_top_k(kept.logits, params.top_k))
    if params.top_p < 1:
        return _top_p(row, params.top_p, weight_sum)
    return row.within(-least)


def _top_k(logits: Logits, k: int) -> IntArray:
    if k >= len(logits):
        return np.arange(len(logits))
    edge = np.partition(logits, -k)[-k]
    above, ties = np.flatnonzero(logits > edge), np.flatnonzero(logits == edge)
    return np.sort(np.concatenate((above, ties[: k - len(above)])))


def _top_p(row: _Row, top_p: float, weight_sum: WeightSum) -> _Kept:
    """Return the nucleus of a row, from bounds on its sum of weights if these are close enough."""
    bounds = _bounds(row, top_p, weight_sum)
    for depth in _DEPTHS:
        kept = row.within(depth)
        order, reached = _ranked(kept.logits, np.exp(kept.logits), bounds[1])
        fewest, last = np.searchsorted(reached, bounds)
        if fewest != last:
            bounds = _bounds(row, top_p, closest_weight_sum)
            fewest, last = np.searchsorted(reached, bounds)
        if last == len(order) or kept.logits[order[last]] < -depth:
            continue  # a token below this depth may belong before the last one
        if fewest == last:
            return kept.only(np.sort(order[: last + 1]))
        break
    kept = row.reaching(-math.inf)
    return kept.only(_nucleus(kept.logits, top_p))


def _bounds(row: _Row, top_p: float, weight_sum: WeightSum) -> tuple[float, float]:
    """Return bounds on what the weights of the nucleus must add up to."""
    least, most = weight_sum(row.logits, row.top, row.temperature)
    return top_p * least * (1 - _SLACK), top_p * most * (1 + _SLACK)


def _nucleus(logits: Logits, top_p: float) -> IntArray:
    """Return the shortest run of most probable tokens whose probabilities reach `top_p`."""
    order, reached = _ranked(logits, softmax(logits), top_p)
    return np.sort(order[: np.searchsorted(reached, top_p) + 1])


def _ranked(logits: Logits, weights: Logits, needed: float) -> tuple[IntArray, Logits]:
    """Sort tokens, best first and ties by id; return them and the running sums of their weights.

    Only as many tokens as reach `needed` are sorted, or all of them.
    """
    for depth in _SORTED:
        likely = np.flatnonzero(logits >= -depth)
        if depth < math.inf and weights[likely].sum() < needed:
            continue
        order = likely[np.argsort(-logits[likely], kind="stable")]
        reached = np.cumsum(weights[order])
        if reached[-1] >= needed:
            break
    return order, reached
