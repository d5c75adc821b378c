"""Truncation, which takes shortcuts, serves the bits of the specification on whole rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from forerun.sampling import Context, largest, served_logits, softmax, weight_sum
from forerun.sampling.largest import largest_bound
from forerun.sampling.truncation import _DEPTHS, _Row
from forerun.types import FloatArray, SamplingParams
from tests.dense_pipeline import dense_truncated

SIZES = (1, 2, 63, 64, 130, 1000, pytest.param(5000, marks=pytest.mark.slow))
TEMPERATURES = (0.01, 0.7, 1.0, 1.3, 50.0)


def rows(vocab_size: int) -> list[FloatArray]:
    """Smooth, tied, flat and steep rows, some with excluded tokens; every other one is float32."""
    made = []
    for seed, scale in enumerate((0.0, 0.3, 3.0, 8.0, 40.0)):
        rng = np.random.default_rng(seed)
        row = rng.normal(20, scale, vocab_size)
        masked = np.where(rng.random(vocab_size) < 0.6, -np.inf, row)
        masked[vocab_size // 2] = 21.0
        made += [row, np.round(row), np.round(row, 1), masked, np.sort(row)]
    return [row.astype((np.float32, np.float64)[idx % 2]) for idx, row in enumerate(made)]


def check(row: FloatArray, **chosen: Any) -> None:
    params = SamplingParams(**chosen)
    before = row.copy()
    got = served_logits(row, params, Context())
    np.testing.assert_array_equal(got, dense_truncated(row, params), err_msg=repr(chosen))
    np.testing.assert_array_equal(row, before)


@pytest.mark.parametrize("vocab_size", SIZES)
def test_top_k(vocab_size: int) -> None:
    for row in rows(vocab_size):
        for k in (1, 2, 7, 39, 40, 500, max(1, vocab_size - 1), vocab_size, vocab_size + 5):
            check(row, top_k=k, temperature=TEMPERATURES[k % 5])


@pytest.mark.parametrize("vocab_size", SIZES)
def test_top_p(vocab_size: int) -> None:
    for row in rows(vocab_size):
        for idx, top_p in enumerate((1e-9, 0.3, 0.5, 0.9, 0.95, 0.999, 1 - 1e-12)):
            check(row, top_p=top_p, temperature=TEMPERATURES[idx % 5])
            check(row, top_p=top_p)


@pytest.mark.parametrize("vocab_size", SIZES)
def test_top_p_at_its_edge(vocab_size: int) -> None:
    """A top_p that a sum of probabilities hits exactly, or misses by the last bit."""
    for row in rows(vocab_size):
        probs = softmax(dense_truncated(row, SamplingParams()))
        reached = np.cumsum(probs[np.argsort(-probs, kind="stable")])
        for num in (1, 2, 5, 60, vocab_size // 2):
            edge = reached[min(num, vocab_size) - 1]
            for top_p in (np.nextafter(edge, 0), edge, np.nextafter(edge, 1)):
                if 0 < top_p < 1:
                    check(row, top_p=float(top_p))


@pytest.mark.parametrize("vocab_size", SIZES)
def test_min_p(vocab_size: int) -> None:
    for row in rows(vocab_size):
        second = float(np.partition(row, -2)[-2] - row.max()) if vocab_size > 1 else -1.0
        edge = float(np.exp(max(second, -700.0)))
        for min_p in (1e-300, 1e-9, 0.05, 0.5, edge, np.nextafter(edge, 0), 1.0):
            check(row, min_p=float(min_p))
            check(row, min_p=float(min_p), temperature=0.7)


def test_all_of_them() -> None:
    for row in rows(1000):
        for k, top_p, min_p in ((50, 0.9, 0.05), (3, 0.5, 0.5), (999, 0.99, 1e-4), (0, 0.9, 0.1)):
            for temperature in TEMPERATURES:
                check(row, top_k=k, top_p=top_p, min_p=min_p, temperature=temperature)
                check(row, top_k=k, min_p=min_p, temperature=temperature)


@pytest.mark.parametrize("temperature", [1e-300, 1e-30, 1e-3, 1e9, 1e30, 1e300])
def test_extreme_temperatures_and_logits(temperature: float) -> None:
    """Division may underflow and make new ties; ties go to the lowest id."""
    tiny = -np.abs(np.random.default_rng(0).normal(0, 1e-300, 700))
    wide = np.linspace(-1e30, 0, 700)
    single = np.random.default_rng(1).normal(0, 1e-40, 700).astype(np.float32)
    for row in (tiny, wide, single, tiny[::-1], np.zeros(700)):
        with np.errstate(over="ignore"):
            for chosen in ({"top_k": 5}, {"top_p": 0.5}, {"min_p": 0.2}, {"min_p": 1.0}):
                check(row, temperature=temperature, **chosen)


def test_ties_that_division_makes_at_the_edge() -> None:
    """Neighbours in float64 whose quotients are equal: the later is larger, the earlier is kept."""
    edge = -1.0
    for temperature in (0.7, 1.3, 3.0):
        for _ in range(50):
            lower = np.nextafter(edge, -np.inf)
            row = np.full(700, -30.0)
            row[[10, 300, 600]] = lower, edge, 0.0
            check(row, top_k=2, temperature=temperature)
            check(row, top_p=0.6, temperature=temperature)
            edge = lower


@pytest.mark.parametrize("depth", _DEPTHS)
@pytest.mark.parametrize("temperature", [0.7, 1.3, 3.0])
def test_ties_with_tokens_that_were_not_looked_at(depth: float, temperature: float) -> None:
    """The last logit looked at equals, once divided, a token below the cut with a lower id."""
    row = np.full(700, -1000.0)
    row[600] = 0.0
    cut = float(_Row(np.array([0.0]), 0.0, temperature).cut(-depth * temperature))
    for _ in range(20):
        lower = np.nextafter(cut, -np.inf)
        row[[10, 300]] = lower, cut
        weight = np.exp(cut / temperature)
        check(row, top_p=(1 + weight / 2) / (1 + 2 * weight), temperature=temperature)
        temperature = float(np.nextafter(temperature, 10))
        cut = float(_Row(np.array([0.0]), 0.0, temperature).cut(-depth * temperature))


@pytest.mark.parametrize("vocab_size", SIZES)
def test_the_largest(vocab_size: int) -> None:
    for row in rows(vocab_size):
        for count in (0, 1, 5, 20, 40, vocab_size, vocab_size + 3):
            expected = np.argsort(-row, kind="stable")[:count]
            assert largest(row, count).tolist() == expected.tolist()
            assert np.sum(row >= largest_bound(row, count)) >= min(count, vocab_size)


@pytest.mark.parametrize("slack", [1e-9, 1e-5, 1e-2, 0.5])
def test_bounds_on_the_sum_never_show(slack: float) -> None:
    """Wide bounds leave more rows to the specification; the result is the same."""

    def wide(logits: FloatArray, top: float, temperature: float) -> tuple[float, float]:
        least, most = weight_sum(logits, top, temperature)
        return least * (1 - slack), most * (1 + slack)

    for row in rows(1000):
        for top_p in (0.3, 0.9, 0.99):
            params = SamplingParams(top_p=top_p, temperature=0.8)
            got = served_logits(row, params, Context(), (), wide)
            np.testing.assert_array_equal(got, dense_truncated(row, params))


def test_min_p_at_its_edge() -> None:
    """A logit at numpy's logarithm of min_p, which is not every library's, and its neighbours."""
    for min_p in np.random.default_rng(5).uniform(0.01, 1, 300):
        edge = np.log(min_p)
        row = np.array([0.0, np.nextafter(edge, -9), edge, np.nextafter(edge, 9)])
        check(np.minimum(row, 0.0), min_p=float(min_p))


@pytest.mark.parametrize("offset", [-1e6, 1e4])
def test_rows_far_from_zero(offset: float) -> None:
    for seed in range(20):
        row = np.random.default_rng(seed).normal(offset, 3, 3000)
        for chosen in ({"top_p": 0.9}, {"top_k": 40}, {"min_p": 0.05}):
            check(row, **chosen)


@pytest.mark.parametrize("temperature", [1.3, 2.0])
def test_a_nucleus_of_many_tokens_is_sorted_once(
    temperature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bounds too wide to decide cost a closer look at the sum, not another sort of the row."""
    row = np.random.default_rng(1).normal(0, 2.5, 20_000).astype(np.float32)
    params = SamplingParams(top_p=0.95, temperature=temperature)
    sizes, argsort = [], np.argsort

    def spied(values: FloatArray, **options: Any) -> Any:
        sizes.append(len(values))
        return argsort(values, **options)

    def wide(logits: FloatArray, top: float, warmth: float) -> tuple[float, float]:
        least, most = weight_sum(logits, top, warmth)
        return least * (1 - 2e-5), most * (1 + 2e-5)

    monkeypatch.setattr(np, "argsort", spied)
    got = served_logits(row, params, Context(), weight_sum=wide)
    monkeypatch.undo()
    np.testing.assert_array_equal(got, dense_truncated(row, params))
    assert sum(sizes) < 1.1 * len(row)


def test_none_of_the_largest() -> None:
    assert largest(np.arange(1000.0), 0).size == 0
