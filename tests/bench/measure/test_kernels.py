"""Products of each weight format, timed."""

from __future__ import annotations

import functools
import itertools
import json

import pytest

from forerun.bench.measure import kernels as bench
from tests.kernels_cpu.test_formats import kernels


def test_every_format_and_row_count_is_measured() -> None:
    clock = itertools.count().__next__
    report = bench.measure_kernels(
        kernels(), clock, ("Q4_1", "Q8_0"), (1, 5), num_repeats=2, matrix_bytes=1 << 20
    )
    assert [product.weight_format for product in report.products] == ["Q4_1", "Q8_0"]
    for product in report.products:
        assert {rows: len(times) for rows, times in product.seconds.items()} == {1: 2, 5: 2}
        assert product.ratio(1) == 1
        assert product.bytes_per_second == product.num_bytes  # a second, on a clock of ticks
    assert report.read_bytes_per_second == 1 << 20
    json.dumps(report.as_dict())


def test_whole_repeats_are_kept_after_an_interrupt() -> None:
    def stop_in(last: int, what: str) -> None:
        if what.startswith(f"measuring, round {last}"):
            raise KeyboardInterrupt

    def measure(rows: tuple[int, ...], last: int) -> bench.KernelReport:
        clock = itertools.count().__next__
        stop = functools.partial(stop_in, last)
        return bench.measure_kernels(kernels(), clock, ("Q8_0",), rows, 4, 1 << 20, stop)

    report = measure((1, 5), 3)
    assert {rows: len(times) for rows, times in report.products[0].seconds.items()} == {1: 2, 5: 2}
    assert report.as_dict()["is_complete"] is False
    with pytest.raises(KeyboardInterrupt):
        measure((1,), 1)
