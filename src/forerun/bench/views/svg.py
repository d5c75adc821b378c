"""Small drawings as text: scales, marks and labels of an inline SVG."""

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
    """Round factors between `low` and `high`: for a logarithmic axis of ratios."""
    steps = (0.1, 0.2, 0.5, 0.8, 1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)
    return [step for step in steps if low <= step <= high]


def drawing(width: float, height: float, parts: Iterable[str], label: str) -> str:
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(label)}">'
        f"{''.join(parts)}</svg>"
    )


def line(x1: float, y1: float, x2: float, y2: float, kind: str, title: str = "") -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}">'
        f"{_title(title)}</line>"
    )


def dot(x: float, y: float, radius: float, kind: str, title: str = "") -> str:
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" class="{kind}">{_title(title)}</circle>'
    )


def bar(x: float, y: float, width: float, height: float, kind: str, title: str = "") -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{max(height, 0):.1f}" '
        f'rx="2" class="{kind}">{_title(title)}</rect>'
    )


def text(x: float, y: float, label: str, kind: str = "", anchor: str = "start") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}">'
        f"{escape(label)}</text>"
    )


def polygon(points: Sequence[tuple[float, float]], kind: str) -> str:
    joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polygon points="{joined}" class="{kind}"/>'


def _title(text: str) -> str:
    return f"<title>{escape(text)}</title>" if text else ""
