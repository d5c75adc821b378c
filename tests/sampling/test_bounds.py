"""Bounds allow for rounding, wherever it may occur."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from forerun.sampling import Context, served_logits, softmax, weight_sum
from forerun.sampling.largest import largest_bound
from forerun.types import FloatArray, SamplingParams
from tests.dense_pipeline import dense_truncated


def exact_weight_sum(logits: FloatArray, top: float, temperature: float) -> float:
    return math.fsum(np.exp((logits.astype(np.float64) - top) / temperature))


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_the_sum_of_weights_lies_within_its_bounds(temperature: float) -> None:
    """A sum in another order differs in its last bits, and the bounds are wider than that."""
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
    """Where top_p is a sum of probabilities, or a bit beside it, the specification decides, with
    its own rounded sums."""
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


def test_large_logits_do_not_overflow() -> None:
    np.testing.assert_allclose(softmax(np.array([1000.0, 1000.0])), [0.5, 0.5])
    np.testing.assert_allclose(softmax(np.array([-1000.0, -1000.0, -np.inf])), [0.5, 0.5, 0.0])


@pytest.mark.parametrize("num_columns", [80, 2000])  # numpy may sort short rows whole
@pytest.mark.parametrize("count", [1, 5, 39])
def test_few_numbers_reach_the_bound_on_the_largest(count: int, num_columns: int) -> None:
    """A tight bound makes the search short; a bound that is too low would still be correct."""
    for seed in range(5):
        row = np.random.default_rng(seed).normal(size=64 * num_columns)
        num = int(np.sum(row >= largest_bound(row, count)))
        assert count <= num <= 3 * count


@pytest.mark.parametrize(
    ("options", "truncates"),
    [
        ({}, False),
        ({"temperature": 0.5, "top_k": -1}, False),
        ({"top_k": 1}, True),
        ({"top_p": 0.999}, True),
        ({"min_p": 1e-9}, True),
    ],
    ids=str,
)
def test_only_what_truncates_is_truncated(options: dict[str, float], truncates: bool) -> None:
    assert SamplingParams.from_dict(options).truncates is truncates


def sorted_sizes(
    row: FloatArray, params: SamplingParams, monkeypatch: pytest.MonkeyPatch, slack: float
) -> list[int]:
    """How many tokens each sort put in order; the result must be the specification's."""
    sizes: list[int] = []
    argsort = np.argsort

    def spied(values: FloatArray, **options: Any) -> Any:
        sizes.append(len(values))
        return argsort(values, **options)

    def bounds(logits: FloatArray, top: float, temperature: float) -> tuple[float, float]:
        exact = exact_weight_sum(logits, top, temperature)
        return exact * (1 - slack), exact * (1 + slack)

    monkeypatch.setattr(np, "argsort", spied)
    got = served_logits(row, params, Context(), (), bounds)
    monkeypatch.undo()
    np.testing.assert_array_equal(got, dense_truncated(row, params))
    return sizes


def steps_down(*counts: int) -> FloatArray:
    """The best token, then `counts` tokens about 2, 4, … nats below it."""
    depths = [0.0]
    for idx, count in enumerate(counts, start=1):
        depths += [-2.0 * idx - 1e-6 * one for one in range(count)]
    return np.array(depths)


def test_a_deep_nucleus_is_found_without_ordering_the_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that ends 9 to 14 nats below the best takes a second look, not an order of all tokens."""
    row = np.append(steps_down(0, 0, 0, 0, 0, 20_000), np.full(50_000, -20.0))
    share = np.exp(row[1:20_001]).sum() / np.exp(row).sum()
    params = SamplingParams(top_p=float(1 - share / 2))
    assert max(sorted_sizes(row, params, monkeypatch, 1e-12)) <= 20_001


def test_an_edge_that_bounds_cannot_tell_is_left_to_the_specification_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A deeper look would tell no more."""
    row = np.append(steps_down(10, 10), np.full(2000, -12.0))
    probs = softmax(row)
    params = SamplingParams(top_p=float(np.cumsum(probs)[5]))
    assert len(sorted_sizes(row, params, monkeypatch, 1e-12)) == 2
