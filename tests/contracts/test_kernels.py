"""Operations of every kernel set are near float64 and have the same bits in any batch.

Attention is in `test_kernel_attention.py`, whole models are in `test_kernel_passes.py`.
"""

from __future__ import annotations

import numpy as np
import pytest

from forerun.kernels import Norm
from forerun.kernels.base import Weight
from tests.contracts.kernel_sets import KERNEL_SETS, KernelSet
from tests.kernels.sources import F32, ArraySource, normal

EPS = float(np.finfo(np.float32).eps)
MAX_ROWS = 64
# [out, in]: odd sizes, single rows and columns, SmolLM2's own, and one of several slices.
SHAPES = ((1, 1), (3, 5), (7, 33), (97, 48), (31, 1000), (960, 576), (576, 1536), (2049, 576))


@pytest.fixture(params=KERNEL_SETS)
def ks(request: pytest.FixtureRequest) -> KernelSet:
    return KERNEL_SETS[request.param]()


def load_matrix(ks: KernelSet, weight: F32) -> Weight:
    return ks.kernels.load_matrix(ArraySource({"w": weight}), ["w"])


def load_norm(ks: KernelSet, weight: F32) -> Norm:
    return Norm(ks.kernels.load_vector(ArraySource({"w": weight}), "w"), 1e-5)


def linear(ks: KernelSet, x: F32, matrix: Weight) -> F32:
    return ks.get(ks.kernels.linear(ks.put(x), matrix))


def add_norm(ks: KernelSet, x: F32, delta: F32 | None, norm: Norm) -> tuple[F32, F32]:
    added = None if delta is None else ks.put(delta)
    total, normed = ks.kernels.add_norm(ks.put(x), added, norm)
    return ks.get(total), ks.get(normed)


def silu_mul(ks: KernelSet, gate_up: F32) -> F32:
    return ks.get(ks.kernels.silu_mul(ks.put(gate_up)))


def one_by_one(ks: KernelSet, x: F32, matrix: Weight) -> F32:
    return np.concatenate([linear(ks, x[t : t + 1], matrix) for t in range(len(x))])


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_product_has_the_same_bits_for_any_number_of_rows(
    ks: KernelSet, shape: tuple[int, int]
) -> None:
    matrix, x = load_matrix(ks, normal(1, *shape)), normal(2, MAX_ROWS, shape[1])
    alone = one_by_one(ks, x, matrix)
    for num_rows in range(1, MAX_ROWS + 1):
        np.testing.assert_array_equal(linear(ks, x[:num_rows], matrix), alone[:num_rows])


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_product_has_the_same_bits_in_any_order(ks: KernelSet, shape: tuple[int, int]) -> None:
    matrix, x = load_matrix(ks, normal(1, *shape)), normal(3, 16, shape[1])
    order = np.random.default_rng(4).permutation(16)
    np.testing.assert_array_equal(linear(ks, x[order], matrix), one_by_one(ks, x, matrix)[order])


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_product_is_near_float64(ks: KernelSet, shape: tuple[int, int]) -> None:
    """Any order of summation stays within in · eps · |W||x|."""
    weight, x = normal(5, *shape), normal(6, 4, shape[1])
    exact = x.astype(np.float64) @ weight.astype(np.float64).T
    bound = (shape[1] * EPS + 2 * ks.rounding) * (np.abs(x) @ np.abs(weight).T)
    assert np.all(np.abs(linear(ks, x, load_matrix(ks, weight)) - exact) <= bound)


def test_stacked_matrices_give_what_each_gives_alone(ks: KernelSet) -> None:
    """Near, not bit-equal: which matrices are stacked is fixed when the model is loaded."""
    source = ArraySource(
        {"q": normal(1, 9, 20), "k": normal(2, 4, 20), "b": normal(3, 9), "c": normal(4, 4)}
    )
    x = normal(5, 3, 20)
    stacked = linear(ks, x, ks.kernels.load_matrix(source, ["q", "k"], ["b", "c"]))
    q = x @ source.arrays["q"].T + source.arrays["b"]
    k = x @ source.arrays["k"].T + source.arrays["c"]
    np.testing.assert_allclose(
        stacked, np.concatenate((q, k), axis=1), atol=1e-5 + 16 * ks.rounding
    )


@pytest.mark.parametrize("width", [1, 7, 48, 576])
def test_residual_and_norm(ks: KernelSet, width: int) -> None:
    x, delta, weight = normal(1, 9, width), normal(2, 9, width), normal(3, width)
    norm = load_norm(ks, weight)
    total, normed = add_norm(ks, x, delta, norm)
    exact = x.astype(np.float64) + delta
    scale = np.sqrt((exact**2).mean(-1, keepdims=True) + 1e-5)
    np.testing.assert_array_equal(total, x + delta)
    np.testing.assert_allclose(normed, exact / scale * weight, rtol=1e-6 + ks.rounding, atol=1e-6)
    for t in range(9):
        _, alone = add_norm(ks, x[t : t + 1], delta[t : t + 1], norm)
        np.testing.assert_array_equal(alone, normed[t : t + 1])


def test_norm_without_a_residual_leaves_x(ks: KernelSet) -> None:
    x = normal(1, 3, 8)
    same, _ = add_norm(ks, x, None, load_norm(ks, np.ones(8, np.float32)))
    np.testing.assert_array_equal(same, x)


@pytest.mark.parametrize("width", [1, 7, 23, 53, 80, 1536])
def test_silu_times_up(ks: KernelSet, width: int) -> None:
    gate, up = normal(1, 9, width) * 4, normal(2, 9, width)
    gate_up = np.concatenate((gate, up), axis=1)
    got = silu_mul(ks, gate_up)
    exact = gate / (1 + np.exp(-gate.astype(np.float64))) * up
    np.testing.assert_allclose(got, exact, rtol=2e-6 + ks.rounding, atol=1e-7)
    alone = [silu_mul(ks, gate_up[t : t + 1]) for t in range(9)]
    np.testing.assert_array_equal(got, np.concatenate(alone))


def test_silu_far_out_is_zero_or_the_gate(ks: KernelSet) -> None:
    gate = np.array(4 * [-3e4, -200, -90, 0, 200, 3e4], np.float32)
    got = silu_mul(ks, np.concatenate((gate, np.ones(24, np.float32)))[None])
    expected = [4 * [0, 0, 0, 0, 200, 3e4]]
    np.testing.assert_allclose(got, expected, rtol=1e-6 + ks.rounding, atol=1e-29)
