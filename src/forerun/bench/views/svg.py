"""Inline SVG drawings: scales, marks and labels."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from html import escape

Scale = Callable[[float], float]


def linear(low: float, high: float, left: float, right: float) -> Scale:
    span = (high - low) or 1.0
    return lambda value: left + (value - low) / span * (right - left)


def logarithmic(low: float, high: float, left: float, right: float) -> Scale:
    at = linear(math.log(low), math.log(high), left, right)
    return lambda value: at(math.log(min(max(value, low), high)))


def ticks(low: float, high: float) -> list[float]:
    """Return round factors between `low` and `high`, for a logarithmic axis of ratios."""
    steps = (0.1, 0.2, 0.5, 0.8, 1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)
    return [step for step in steps if low <= step <= high]


def drawing(width: float, height: float, parts: Iterable[str], label: str) -> str:
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(label)}">'
        f"{''.join(parts)}</svg>"
    )


def line(x1: float, y1: float, x2: float, y2: float, kind: str, title: str = "") -> str:
    return _mark("line", kind, _title(title), x1=x1, y1=y1, x2=x2, y2=y2)


def dot(x: float, y: float, radius: float, kind: str, title: str = "") -> str:
    return _mark("circle", kind, _title(title), cx=x, cy=y, r=radius)


def bar(x: float, y: float, width: float, height: float, kind: str, title: str = "") -> str:
    size = {"width": max(width, 0), "height": max(height, 0)}
    return _mark("rect", kind, _title(title), x=x, y=y, rx=2, **size)


def text(x: float, y: float, label: str, kind: str = "", anchor: str = "start") -> str:
    return _mark("text", kind, escape(label), x=x, y=y, text_anchor=anchor)


def polygon(points: Sequence[tuple[float, float]], kind: str) -> str:
    joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polygon points="{joined}" class="{kind}"/>'


def _mark(tag: str, kind: str, inside: str, **attributes: float | str) -> str:
    """Return an element; numbers have one decimal, and `_` in attribute names becomes `-`."""
    listed = ""
    for name, value in attributes.items():
        shown = value if isinstance(value, str) else f"{value:.1f}"
        listed += f' {name.replace("_", "-")}="{shown}"'
    return f'<{tag}{listed} class="{kind}">{inside}</{tag}>'


def _title(text: str) -> str:
    return f"<title>{escape(text)}</title>" if text else ""
