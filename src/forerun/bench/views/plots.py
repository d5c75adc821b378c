"""A record as a figure ([plot] extra): ratios to plain, predictions, acceptance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from forerun.bench.measure.contenders import DEFAULT, PLAIN
from forerun.bench.records.record import Record
from forerun.bench.records.summary import labelled
from forerun.bench.views.svg import ticks
from forerun.theory.canvas import INK, SHADES, canvas


def save_plot(record: Record, path: Path) -> None:
    """Draw three panels side by side into `path` (.png, .pdf or .svg)."""
    record = labelled(record)
    with canvas(path, 16, 6) as figure:
        left, middle, right = figure.subplots(1, 3, width_ratios=(1.4, 1, 1))
        draw_ratios(left, record)
        draw_predictions(middle, record)
        draw_acceptance(right, record)


def draw_ratios(axes: Any, record: Record) -> None:
    """Draw median ratios to plain with their intervals: a row per class, a shade per contender."""
    axes.set_title("Speed against plain decoding")
    names = [name for name in record.contenders if name != PLAIN]
    classes = list(record.workloads)
    for number, name in enumerate(names):
        shade = SHADES[2] if name == DEFAULT else f"{0.35 + 0.4 * number / len(names):.2f}"
        for row, workload in enumerate(classes):
            cell = record.cell(workload, name)
            if cell is not None and cell.ratio is not None:
                ratio, y = cell.ratio, row + 0.6 * number / len(names) - 0.3
                axes.plot([ratio.low, ratio.high], [y, y], color=shade)
                label = name if row == 0 else None
                axes.plot(ratio.median, y, "o", color=shade, label=label)
    axes.axvline(1, color=INK, linewidth=0.8)
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    shown = ticks(low, high)
    axes.set_xticks(shown, [f"{tick:g}×" for tick in shown])
    axes.minorticks_off()
    axes.set_yticks(range(len(classes)), classes)
    axes.invert_yaxis()
    axes.set_xlabel("times faster")
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8, edgecolor="none")


def draw_predictions(axes: Any, record: Record) -> None:
    axes.set_title("Predicted and measured")
    found = [cell.prediction for cell in record.cells if cell.prediction]
    axes.plot([p.measured for p in found], [p.predicted for p in found], "o", color=SHADES[2])
    most = max((max(p.measured, p.predicted) for p in found), default=2) * 1.1
    axes.plot([0, most], [0, most], color=INK, linewidth=0.8)
    axes.fill_between([0, most], [0, 0.9 * most], [0, 1.1 * most], color=SHADES[2], alpha=0.15)
    axes.set_xlabel("measured speedup")
    axes.set_ylabel("predicted")


def draw_acceptance(axes: Any, record: Record) -> None:
    axes.set_title("How far guesses are accepted")
    for number, workload in enumerate(record.workloads):
        cell = record.cell(workload, DEFAULT)
        if cell is not None and cell.acceptance_by_position:
            shares = cell.acceptance_by_position
            shade = SHADES[number % len(SHADES)]
            axes.plot(range(1, len(shares) + 1), shares, "o-", color=shade, label=workload)
    axes.set_ylim(0, 1)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_xlabel("place in the proposal")
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8, edgecolor="none")
