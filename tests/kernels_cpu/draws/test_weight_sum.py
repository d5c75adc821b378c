"""The kernel's bounds on a row's sum of weights hold, so top-p serves the same bits."""

from __future__ import annotations

import numpy as np
import pytest

from forerun.sampling import Context, served_logits, weight_sum
from forerun.types import SamplingParams
from tests.kernels_cpu.products.test_formats import kernels
from tests.sampling.test_truncation import SIZES, rows


@pytest.mark.parametrize("vocab_size", SIZES)
@pytest.mark.parametrize("temperature", [1e-300, 1e-6, 0.01, 0.7, 1.0, 30.0, 1e6, 1e30])
def test_the_sum_lies_between_its_bounds(vocab_size: int, temperature: float) -> None:
    bounds = kernels().weight_sum
    for row in rows(vocab_size):
        with np.errstate(over="ignore"):
            least, most = bounds(row, float(row.max()), temperature)
            exact = sum(weight_sum(row, float(row.max()), temperature)) / 2
        assert least < exact < most
        assert most / least < 1 + 1e-4


@pytest.mark.parametrize("vocab_size", SIZES)
def test_top_p_serves_the_same_bits(vocab_size: int) -> None:
    bounds = kernels().weight_sum
    for row in rows(vocab_size):
        for top_p in (0.3, 0.9, 0.99, 0.99999):
            params = SamplingParams(top_p=top_p, temperature=0.7)
            got = served_logits(row, params, Context(), (), bounds)
            np.testing.assert_array_equal(got, served_logits(row, params, Context()))
