"""A kernel report as a table and as a figure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.table import Table

from forerun.bench.kernels import KernelReport, Product
from forerun.planning.canvas import canvas


def kernel_table(report: KernelReport) -> Table:
    """A row per format: size, speed for one row, and what more rows cost."""
    rows = list(report.products[0].seconds)
    table = Table(title=_title(report), box=None, pad_edge=False, title_justify="left")
    table.add_column("format")
    for heading in ("MB", "ms", "GB/s", "of read"):
        table.add_column(heading, justify="right")
    for num_rows in rows[1:]:
        table.add_column(f"×{num_rows}", justify="right", no_wrap=True)
    for product in report.products:
        table.add_row(*_cells(report, product))
    return table


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
