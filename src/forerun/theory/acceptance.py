"""How often guesses are accepted, from the distributions themselves.

β is the chance that one guess is accepted after one prefix; α is its mean over prefixes. p is the
target's law, q the drafter's, both after their sampling transforms, each one row [V].
"""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from forerun.errors import InvalidDistribution, InvalidOption
from forerun.types import FloatArray, check_probs

Float64Array: TypeAlias = npt.NDArray[np.float64]


def beta_rejection(probs_p: FloatArray, probs_q: FloatArray) -> float:
    """Σ min(p, q) = 1 - Σ|p - q|/2: the chance under `rejection` (Thm 3.5)."""
    p, q = _checked_pair(probs_p, probs_q)
    return min(1.0, math.fsum(np.minimum(p, q)))


def beta_coupled(probs_p: FloatArray, probs_q: FloatArray) -> float:
    """Σ_x 1 / Σ_y max(p_y/p_x, q_y/q_x): the chance under `coupled`.

    It lies between β/(2 - β) and β, where β is the chance under `rejection`. In the order of
    falling p/q, the inner maximum is p_y/p_x for all y up to x and q_y/q_x after it, so two running
    sums replace the V² terms.
    """
    p, q = _checked_pair(probs_p, probs_q)
    possible = (p > 0) | (q > 0)
    p, q = p[possible], q[possible]
    with np.errstate(divide="ignore"):  # log 0 = −inf sorts tokens with p = 0 or q = 0 to the ends
        order = np.argsort(np.log(q) - np.log(p), kind="stable")
    p, q = p[order], q[order]
    p_upto, q_after = np.cumsum(p), np.cumsum(q[::-1])[::-1] - q
    common = (p > 0) & (q > 0)
    with np.errstate(over="ignore"):  # a ratio beyond float64 contributes nothing
        inner = p_upto[common] / p[common] + q_after[common] / q[common]
    return min(1.0, math.fsum(1 / inner))


def beta_lenient(probs_p: FloatArray, probs_q: FloatArray, lenience: float) -> float:
    """Σ min(p/l, q): the chance under the lossy `lenient` (A.5), which emits no token above p/l."""
    p, q = _checked_pair(probs_p, probs_q)
    if not 0 < lenience <= 1:
        raise InvalidOption(f"lenience is {lenience!r}; give a number above 0, at most 1.")
    with np.errstate(over="ignore"):  # the minimum is at most q, so overflow never wins
        accepted = np.minimum(p / lenience, q)
    return min(1.0, math.fsum(accepted))


def beta_plain_rejection(probs_p: FloatArray, probs_q: FloatArray) -> float:
    """min q/p where p > 0: the chance under textbook rejection sampling (A.2)."""
    p, q = _checked_pair(probs_p, probs_q)
    drawn = p > 0
    with np.errstate(over="ignore"):  # the minimum is at most 1, so overflow never wins
        return min(1.0, float((q[drawn] / p[drawn]).min()))


def _checked_pair(probs_p: FloatArray, probs_q: FloatArray) -> tuple[Float64Array, Float64Array]:
    """Return p and q as float64, normalised to 1 as closely as float64 can."""
    p, q = np.asarray(probs_p, np.float64), np.asarray(probs_q, np.float64)
    check_probs(p, "p")
    check_probs(q, "q")
    if p.shape != q.shape:
        raise InvalidDistribution(
            f"p has {p.size} tokens and q has {q.size}; give both over one vocabulary."
        )
    return p / p.sum(), q / q.sum()
