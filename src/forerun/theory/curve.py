"""The curve of α at each place over a head's training ([plot] extra)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from forerun.theory.canvas import SHADES, canvas

Point = tuple[float, Sequence[float]]  # seconds, and α at each place


def save_curve(path: Path, points: Sequence[Point]) -> None:
    seconds = [point[0] for point in points]
    with canvas(path, 7, 4) as figure:
        axes = figure.subplots()
        for place in range(len(points[0][1])):
            alphas = [point[1][place] for point in points]
            shade = SHADES[place % len(SHADES)]
            axes.plot(seconds, alphas, marker="o", color=shade, label=f"place {place + 1}")
        axes.set(xlabel="seconds", ylabel="α on held-out texts", ylim=(0, 1))
        axes.legend(frameon=False)
