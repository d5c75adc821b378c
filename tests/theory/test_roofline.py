"""Weight-streaming figures."""

from __future__ import annotations

import math

import pytest

from forerun.errors import InvalidOption
from roofline import arithmetic_intensity, free_tokens, weight_read_seconds


def test_one_operation_per_byte_when_decoding_in_16_bits() -> None:
    assert arithmetic_intensity(1, 2) == 1.0
    assert arithmetic_intensity(6, 2) == 6.0  # five guesses and one more token


def test_140_gb_take_41_8_ms_at_3350_gb_per_second() -> None:
    weights = 70e9 * 2
    assert weights == 140e9
    assert round(weight_read_seconds(weights, 3_350e9) * 1e3, 1) == 41.8


def test_tokens_that_ride_along_before_arithmetic_binds() -> None:
    num_tokens = free_tokens(
        operations_per_second=990e12, bytes_per_second=3.3e12, bytes_per_weight=2
    )
    assert num_tokens == pytest.approx(300)
    assert arithmetic_intensity(300, 2) * 3.3e12 == pytest.approx(990e12)


@pytest.mark.parametrize("bad", [0, -1, math.nan, math.inf])
def test_impossible_rates_are_refused(bad: float) -> None:
    with pytest.raises(InvalidOption, match="above 0"):
        weight_read_seconds(1e9, bad)
    with pytest.raises(InvalidOption, match="above 0"):
        free_tokens(1e12, 1e12, bad)
    with pytest.raises(InvalidOption, match="whole number"):
        arithmetic_intensity(-1, 2)
