"""Products of each weight format, timed."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import pytest

from forerun.bench.measure import kernels as bench
from tests.kernels_cpu.products.test_formats import kernels


def test_every_format_and_row_count_is_measured() -> None:
    clock = itertools.count().__next__
    report = bench.measure_kernels(
        kernels(), clock, ("Q4_1", "Q8_0"), (1, 5), num_repeats=2, matrix_bytes=1 << 20
    )
    assert [product["format"] for product in report["products"]] == ["Q4_1", "Q8_0"]
    for product in report["products"]:
        assert product["seconds"] == {"1": [1, 1], "5": [1, 1]}  # one tick of the clock each
        assert product["ratios"] == {"1": 1, "5": 1}
        assert product["bytes_per_second"] == product["bytes"] > 0
    assert report["read_bytes_per_second"] == 1 << 20


def test_whole_repeats_are_kept_after_an_interrupt() -> None:
    def stop_in(last: int, what: str) -> None:
        if what.startswith(f"measuring, round {last}"):
            raise KeyboardInterrupt

    def measure(rows: tuple[int, ...], last: int) -> dict[str, Any]:
        clock = itertools.count().__next__
        stop = functools.partial(stop_in, last)
        return bench.measure_kernels(kernels(), clock, ("Q8_0",), rows, 4, 1 << 20, stop)

    report = measure((1, 5), 3)
    assert report["products"][0]["seconds"] == {"1": [1, 1], "5": [1, 1]}
    assert report["is_complete"] is False
    with pytest.raises(KeyboardInterrupt):
        measure((1,), 1)
