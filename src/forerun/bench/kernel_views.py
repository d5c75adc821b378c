"""A kernel report as a sheet and as a figure."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from forerun.bench.kernels import KernelReport, Product
from forerun.bench.sheet import Sheet
from forerun.theory.canvas import canvas

_LEGEND: Final = (
    "ms and GB/s: one row times all weights; of read: of the speed at which memory is read; "
    "×n: the time of n rows in units of one"
)


def kernel_sheet(report: KernelReport) -> Sheet:
    """A row per format: size, speed for one row, and what more rows cost."""
    more = [f"×{num_rows}" for num_rows in report.products[0].seconds][1:]
    rows = [_cells(report, product) for product in report.products]
    groups = [["MB", "ms", "GB/s", "of read"], more]
    return Sheet(_title(report), ["format"], groups, rows, legend=[_LEGEND])


def _title(report: KernelReport) -> str:
    speed = report.read_bytes_per_second / 1e9
    return f"{report.num_threads} threads · memory reads at {speed:.1f} GB/s"


def _cells(report: KernelReport, product: Product) -> list[str]:
    rows = list(product.seconds)
    return [
        product.weight_format,
        f"{product.num_bytes / 1e6:.0f}",
        f"{product.median(1) * 1e3:.2f}",
        f"{product.bytes_per_second / 1e9:.1f}",
        f"{report.share_of_bandwidth(product):.0%}",
        *(f"{product.ratio(num_rows):.1f}" for num_rows in rows[1:]),
    ]


def save_kernel_plot(report: KernelReport, path: Path) -> None:
    """The cost of n rows in units of one row, a line per format, into .png, .pdf or .svg."""
    with canvas(path, 12, 5) as figure:
        left, right = figure.subplots(1, 2)
        draw_costs(left, report)
        draw_speeds(right, report)


def draw_costs(axes: Any, report: KernelReport) -> None:
    axes.set_title("Cost of more rows")
    for product in report.products:
        rows = list(product.seconds)
        axes.plot(rows, [product.ratio(n) for n in rows], marker="o", label=product.weight_format)
    axes.set_xlabel("rows in one product")
    axes.set_ylabel("time, in units of one row")
    axes.legend()


def draw_speeds(axes: Any, report: KernelReport) -> None:
    axes.set_title("Weights read per second, one row")
    names = [product.weight_format for product in report.products]
    axes.barh(names, [product.bytes_per_second / 1e9 for product in report.products])
    axes.axvline(report.read_bytes_per_second / 1e9, linestyle="--", color="black")
    axes.set_xlabel("GB/s; dashed: memory alone")
    axes.invert_yaxis()
