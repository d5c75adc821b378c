"""The χ² helpers themselves, on known values."""

import numpy as np
import pytest

from tests.statistics import chi2_p_value, chi2_survival


@pytest.mark.parametrize(
    ("statistic", "num_free", "tail"),
    [(3.841459, 1, 0.05), (5.991465, 2, 0.05), (18.307038, 10, 0.05), (124.342113, 100, 0.05),
     (10.827566, 1, 0.001), (149.449253, 100, 0.001)],
)  # fmt: skip
def test_tabulated_quantiles(statistic: float, num_free: int, tail: float) -> None:
    assert chi2_survival(statistic, num_free) == pytest.approx(tail, rel=1e-5)


def test_fair_and_loaded_dice() -> None:
    rng = np.random.default_rng(0)
    fair = np.bincount(rng.integers(6, size=6000), minlength=6)
    loaded = np.bincount(rng.choice(6, size=6000, p=[0.2, *[0.16] * 5]), minlength=6)
    assert chi2_p_value(fair, [1000] * 6) > 1e-3
    assert chi2_p_value(loaded, [1000] * 6) < 1e-6


def test_a_count_where_nothing_is_expected_is_impossible() -> None:
    assert chi2_p_value([99, 1], [100, 0]) == 0
