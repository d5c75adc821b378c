"""Bounds are bounds: what may be off by rounding is allowed for, at every place where it is."""

from __future__ import annotations

import math

import numpy as np
import pytest

from forerun.sampling import Context, served_logits, softmax, weight_sum
from forerun.types import FloatArray, SamplingParams
from tests.dense_pipeline import dense_truncated


def exact_weight_sum(logits: FloatArray, top: float, temperature: float) -> float:
    return math.fsum(np.exp((logits.astype(np.float64) - top) / temperature))


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_the_sum_of_weights_lies_within_its_bounds(temperature: float) -> None:
    """Added in another order a sum is off in its last bits, and the bounds are wider than that."""
    for seed in range(50):
        row = np.random.default_rng(seed).normal(size=1000)
        least, most = weight_sum(row, float(row.max()), temperature)
        exact = exact_weight_sum(row, float(row.max()), temperature)
        assert least < exact * (1 - 1e-12)
        assert most > exact * (1 + 1e-12)
        assert most < least * (1 + 1e-8), "and not so wide that nothing is decided"


def closest(logits: FloatArray, top: float, temperature: float) -> tuple[float, float]:
    """The narrowest bounds a kernel may give: the exact sum, rounded."""
    exact = exact_weight_sum(logits, top, temperature)
    return exact, exact


def test_a_nucleus_by_the_narrowest_bounds_is_the_specifications() -> None:
    """At a top_p that a sum of probabilities hits, the specification decides, and its own sums
    are rounded, too."""
    for seed in range(60):
        row = np.round(np.random.default_rng(seed).normal(0, 2, 300), 1)
        probs = softmax(dense_truncated(row, SamplingParams()))
        reached = np.cumsum(probs[np.argsort(-probs, kind="stable")])
        for num in (1, 2, 3, 5, 10, 30, 60):
            for top_p in (
                np.nextafter(reached[num], 0),
                reached[num],
                np.nextafter(reached[num], 1),
            ):
                params = SamplingParams(top_p=float(top_p))
                got = served_logits(row, params, Context(), (), closest)
                np.testing.assert_array_equal(got, dense_truncated(row, params))
