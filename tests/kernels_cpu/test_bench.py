"""The kernel benchmark measures, and its views show what it measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from forerun.bench import kernels as bench
from forerun.bench.kernel_views import kernel_sheet, save_kernel_plot
from forerun.errors import InvalidOption
from tests.kernels_cpu.products.test_formats import kernels


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch) -> bench.KernelReport:
    monkeypatch.setattr(bench, "MATRIX_BYTES", 1 << 20)
    return bench.measure_kernels(kernels(), ("Q4_1", "Q8_0"), (1, 5), num_repeats=2)


def test_every_format_and_row_count_is_measured(report: bench.KernelReport) -> None:
    assert [product.weight_format for product in report.products] == ["Q4_1", "Q8_0"]
    for product in report.products:
        assert {rows: len(times) for rows, times in product.seconds.items()} == {1: 2, 5: 2}
        assert product.ratio(1) == 1
        assert product.bytes_per_second > 0
    json.dumps(report.as_dict())


def test_whole_repeats_are_kept_after_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "MATRIX_BYTES", 1 << 20)

    def stop_in(last: int, what: str) -> None:
        if what.startswith(f"measuring, round {last}"):
            raise KeyboardInterrupt

    report = bench.measure_kernels(kernels(), ("Q8_0",), (1, 5), 4, lambda what: stop_in(3, what))
    assert {rows: len(times) for rows, times in report.products[0].seconds.items()} == {1: 2, 5: 2}
    assert report.as_dict()["is_complete"] is False
    with pytest.raises(KeyboardInterrupt):
        bench.measure_kernels(kernels(), ("Q8_0",), (1,), 4, lambda what: stop_in(1, what))


def test_the_table_has_a_row_per_format(report: bench.KernelReport) -> None:
    console = Console(width=120, record=True)
    console.print(kernel_sheet(report))
    text = console.export_text()
    assert "Q4_1" in text
    assert "Q8_0" in text
    assert "×5" in text


def test_the_plot_is_written_and_other_endings_are_refused(
    report: bench.KernelReport, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    save_kernel_plot(report, tmp_path / "kernels.png")
    assert (tmp_path / "kernels.png").stat().st_size > 1000
    with pytest.raises(InvalidOption, match="end it in"):
        save_kernel_plot(report, tmp_path / "kernels.txt")
