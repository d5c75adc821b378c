"""The charts of a report, each a function from a record to an inline SVG."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from forerun.bench.measure.bootstrap import Interval, Quantiles
from forerun.bench.measure.contenders import DEFAULT, PLAIN
from forerun.bench.measure.prediction import TOLERANCE
from forerun.bench.records.cells import Cell
from forerun.bench.records.summary import peer_of
from forerun.bench.views import svg

WIDTH = 760.0
_LEFT, _RIGHT = 330.0, 60.0  # margins: on the left is room for a class and a long name
_ROW, _GAP = 17.0, 9.0

Value = TypeVar("Value")


def ratio_chart(cells: Sequence[Cell]) -> str:
    """Draw speed ÷ plain, a row per contender: the median and its 95 % interval."""
    shown = [(c, c.ratio) for c in cells if c.ratio is not None and c.contender != PLAIN]
    if not shown:
        return ""
    low = min(0.8, *(ratio.low for _, ratio in shown))
    high = max(1.25, *(ratio.high for _, ratio in shown)) * 1.05
    at = svg.logarithmic(low, high, _LEFT, WIDTH - _RIGHT)
    parts, height = _by_class(shown, 26.0, lambda cell, ratio, y: _ratio_marks(cell, ratio, at, y))
    axis = _ratio_axis(at, low, high, height)
    return svg.drawing(WIDTH, height + 4, [*axis, *parts], "speed against plain")


def _by_class(
    shown: Sequence[tuple[Cell, Value]],
    y: float,
    marks: Callable[[Cell, Value, float], Iterator[str]],
) -> tuple[list[str], float]:
    """Draw a row per contender, with gaps between classes; return the parts and their end."""
    parts, last = list[str](), shown[0][0].workload
    for number, (cell, value) in enumerate(shown):
        if cell.workload != last:
            y += _GAP
        if number == 0 or cell.workload != last:
            parts.append(svg.text(0, y + 4, cell.workload, "class"))
        parts.append(svg.text(_LEFT - 8, y + 4, cell.contender, f"name {_kind(cell)}", "end"))
        parts += marks(cell, value, y)
        y, last = y + _ROW, cell.workload
    return parts, y + _GAP


def _kind(cell: Cell) -> str:
    """Return the cell's class in the style sheet."""
    if peer_of(cell) is not None:
        return "peer"
    return {DEFAULT: "ours", PLAIN: "plain"}.get(cell.contender, "other")


def _ratio_axis(at: svg.Scale, low: float, high: float, height: float) -> Iterator[str]:
    for tick in svg.ticks(low, high):
        kind = "one" if tick == 1 else "grid"
        yield svg.line(at(tick), 14, at(tick), height - 8, kind)
        yield svg.text(at(tick), 10, f"{tick:g}×", "axis", "middle")


def _ratio_marks(cell: Cell, ratio: Interval, at: svg.Scale, y: float) -> Iterator[str]:
    kind = _kind(cell)
    tip = f"{cell.workload}, {cell.contender}: {ratio.median:.2f} × plain, "
    tip += f"95 % between {ratio.low:.2f} and {ratio.high:.2f}, {ratio.num} pairs"
    yield svg.line(at(ratio.low), y, at(ratio.high), y, f"range {kind}", tip)
    yield svg.dot(at(ratio.median), y, 5 if kind == "ours" else 3.5, f"mark {kind}", tip)
    yield svg.text(WIDTH - _RIGHT + 8, y + 4, f"{ratio.median:.2f}×", f"name {kind}")


def acceptance_chart(cells: Sequence[Cell], contender: str) -> str:
    """Draw the accepted share by place in the proposal, a small panel per class."""
    shown = [c for c in cells if c.contender == contender and c.acceptance_by_position]
    if not shown:
        return ""
    parts, per_row, panel, height = list[str](), 3, WIDTH / 3, 112.0
    for number, cell in enumerate(shown):
        left, top = (number % per_row) * panel, (number // per_row) * height
        parts += _acceptance_panel(cell, left, top, panel - 24)
    rows = -(-len(shown) // per_row)
    return svg.drawing(WIDTH, rows * height, parts, "acceptance by position")


def _acceptance_panel(cell: Cell, left: float, top: float, width: float) -> Iterator[str]:
    base, tall = top + 92, 62.0
    shares = cell.acceptance_by_position[:12]
    step = width / max(len(shares), 6)
    yield svg.text(left, top + 14, cell.workload, "class")
    per_pass = "" if cell.tokens_per_pass is None else f"{cell.tokens_per_pass:.2f} tokens a pass"
    yield svg.text(left + width, top + 14, per_pass, "axis", "end")
    yield svg.line(left, base, left + width, base, "grid")
    for place, share in enumerate(shares):
        x = left + place * step
        tip = f"{cell.workload}, guess {place + 1}: accepted in {share:.0%} of its rounds"
        yield svg.bar(x + 2, base - share * tall, step - 4, share * tall, "ours bar", tip)
        yield svg.text(x + step / 2, base + 13, str(place + 1), "axis", "middle")


def prediction_chart(cells: Sequence[Cell]) -> str:
    """Draw predicted against measured speedups; the band is ±10 %."""
    found = [(c, c.prediction) for c in cells if c.prediction is not None]
    if not found:
        return ""
    values = [value for _, p in found for value in (p.predicted, p.measured)]
    low, high = min(values) * 0.85, max(values) * 1.15
    size, left = 340.0, 60.0
    x, y = svg.logarithmic(low, high, left, left + size), svg.logarithmic(low, high, size, 10)
    parts = [_band(x, y, low, high), svg.line(x(low), y(low), x(high), y(high), "one")]
    for tick in svg.ticks(low, high):
        parts.append(svg.text(x(tick), size + 18, f"{tick:g}×", "axis", "middle"))
        parts.append(svg.text(left - 8, y(tick) + 4, f"{tick:g}×", "axis", "end"))
    for cell, p in found:
        tip = f"{cell.workload}, {cell.contender}: predicted {p.predicted:.2f}, "
        tip += f"measured {p.measured:.2f}. {p.reason or ''}"
        parts.append(svg.dot(x(p.measured), y(p.predicted), 5, f"mark {_kind(cell)}", tip))
    parts.append(svg.text(left + size, size + 36, "measured", "axis", "end"))
    parts.append(svg.text(left + 6, 22, "predicted", "axis"))
    return svg.drawing(WIDTH, size + 44, parts, "predicted against measured speedup")


def _band(x: svg.Scale, y: svg.Scale, low: float, high: float) -> str:
    more, less = 1 + TOLERANCE, 1 - TOLERANCE
    corners = [(low, low * more), (high, high * more), (high, high * less), (low, low * less)]
    return svg.polygon([(x(a), y(b)) for a, b in corners], "band")


def speed_chart(cells: Sequence[Cell]) -> str:
    """Draw the tokens per second of all contenders."""
    shown = [(c, c.tokens_per_second) for c in cells if c.tokens_per_second]
    if not shown:
        return ""
    fastest = max(speed for _, speed in shown)
    at = svg.linear(0, fastest, 0, WIDTH - _LEFT - _RIGHT)

    def marks(cell: Cell, speed: float, y: float) -> Iterator[str]:
        yield svg.bar(_LEFT, y - 5, at(speed), _ROW - 5, f"{_kind(cell)} bar")
        yield svg.text(_LEFT + at(speed) + 6, y + 4, f"{speed:.1f}", "axis")

    parts, height = _by_class(shown, 15.0, marks)
    return svg.drawing(WIDTH, height - 7, parts, "tokens per second")


def latency_chart(cells: Sequence[Cell]) -> str:
    """Draw the milliseconds per token of answers: a dot at p50, a line to p99."""
    shown = [(c, c.answer_ms) for c in cells if c.answer_ms and c.contender in (PLAIN, DEFAULT)]
    if not shown:
        return ""
    at = svg.linear(0, max(q["p99"] for _, q in shown), _LEFT, WIDTH - _RIGHT)

    def marks(cell: Cell, q: Quantiles, y: float) -> Iterator[str]:
        tip = f"{cell.workload}, {cell.contender}: p50 {q['p50']:.1f}, p95 {q['p95']:.1f}, "
        tip += f"p99 {q['p99']:.1f} ms a token"
        yield svg.line(at(q["p50"]), y, at(q["p99"]), y, f"range {_kind(cell)}", tip)
        yield svg.dot(at(q["p50"]), y, 4.5, f"mark {_kind(cell)}", tip)
        yield svg.text(at(q["p99"]) + 6, y + 4, f"{q['p50']:.1f}", "axis")

    parts, height = _by_class(shown, 14.0, marks)
    return svg.drawing(WIDTH, height, parts, "latency per token")
