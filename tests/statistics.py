"""χ² by hand, so that tests need no scipy."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

# Every sampled test uses this rate and a fixed seed: with ~200 such tests, one run in 5,000 of a
# *re-seeded* suite would raise a false alarm; with the seeds fixed, none does.
FALSE_ALARM_RATE = 1e-6


def chi2_survival(statistic: float, num_free: int) -> float:
    """P(χ² ≥ statistic): the regularised upper incomplete gamma function Q(k/2, x/2)."""
    a, x = num_free / 2, statistic / 2
    if x <= 0:
        return 1.0
    front = math.exp(a * math.log(x) - x - math.lgamma(a))
    return 1 - front * _series(a, x) if x < a + 1 else front * _continued_fraction(a, x)


def _series(a: float, x: float) -> float:
    term = total = 1 / a
    for n in range(1, 10_000):
        term *= x / (a + n)
        total += term
        if term < total * 1e-15:
            return total
    raise AssertionError(f"no convergence for a={a}, x={x}")


def _continued_fraction(a: float, x: float) -> float:
    """Lentz's method."""
    b, c = x + 1 - a, math.inf
    d = value = 1 / b
    for n in range(1, 10_000):
        factor = -n * (n - a)
        b += 2
        d = 1 / (factor * d + b)
        c = b + factor / c
        value *= c * d
        if abs(c * d - 1) < 1e-15:
            return value
    raise AssertionError(f"no convergence for a={a}, x={x}")


def chi2_p_value(counts: npt.ArrayLike, expected: npt.ArrayLike) -> float:
    """Return the p-value of Pearson's χ².

    Cells expected under 5 are pooled; a count where nothing is expected gives 0.
    """
    observed = np.asarray(counts, float).ravel()
    wanted = np.asarray(expected, float).ravel()
    assert abs(observed.sum() - wanted.sum()) < 1e-6 * wanted.sum(), "totals differ"
    if np.any(observed[wanted == 0] > 0):
        return 0.0
    rare = wanted < 5
    observed = np.append(observed[~rare], observed[rare].sum())
    wanted = np.append(wanted[~rare], wanted[rare].sum())
    observed, wanted = observed[wanted > 0], wanted[wanted > 0]
    if len(wanted) == 1:
        return 1.0
    statistic = float(((observed - wanted) ** 2 / wanted).sum())
    return chi2_survival(statistic, len(wanted) - 1)
