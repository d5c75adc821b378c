"""The paper's Figures 2, 3 and 4 from our own closed forms, in one file ([plot] extra)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from forerun.theory.canvas import INK, SHADES, canvas
from forerun.theory.closed_forms import expected_tokens, operations_factor, optimal_depth, speedup

ALPHAS: Final = tuple(step / 200 for step in range(201))
DEEPEST_SHOWN: Final = 20


def save_figures(path: Path) -> None:
    """Draw the three figures side by side into `path` (.png, .pdf or .svg)."""
    with canvas(path, 15, 5, w_pad=0.2, h_pad=0.1) as figure:
        left, middle, right = figure.subplots(1, 3)
        draw_expected_tokens(left)
        draw_optimal_depth(middle)
        draw_trade_off(right)


def draw_expected_tokens(axes: Any, depths: Sequence[int] = (1, 3, 5, 7, 10)) -> None:
    """Figure 2: Eq. 1 against α, one line per depth."""
    axes.set_title("Tokens per round\n")
    _subtitle(axes, "expected, by depth γ   (Figure 2)")
    for depth, shade in zip(depths, SHADES, strict=True):
        _line(axes, partial(expected_tokens, depth=depth), shade)
        _end_label(axes, depth + 1, f"γ = {depth}", shade)
    _alpha_axis(axes)
    axes.set_ylim(0, max(depths) + 1.6)


def draw_optimal_depth(axes: Any, costs: Sequence[float] = (0.01, 0.02, 0.05, 0.1)) -> None:
    """Figure 3: the best depth against α, one staircase per draft cost."""
    axes.set_title("Best depth\n")
    _subtitle(axes, "by cost c of one draft step   (Figure 3)")
    for cost, shade in zip(costs, SHADES, strict=False):
        best = [optimal_depth(alpha, cost, DEEPEST_SHOWN + 2) for alpha in ALPHAS]
        axes.step(ALPHAS, best, where="post", color=shade, label=f"c = {cost:g}")
    legend = axes.legend(
        loc="upper left", edgecolor="none", framealpha=1, labelcolor="linecolor", fontsize=10
    )
    for text in legend.get_texts():
        text.set_weight("bold")
    _alpha_axis(axes)
    axes.set_yticks(range(0, DEEPEST_SHOWN + 1, 4))
    axes.set_ylim(0, DEEPEST_SHOWN + 0.5)


def draw_trade_off(axes: Any, depths: Sequence[int] = (3, 5, 7, 10)) -> None:
    """Figure 4: speedup (solid) and arithmetic (dashed) against α, with c = ĉ = 0."""
    axes.set_title("Speedup and arithmetic\n")
    _subtitle(axes, "solid: times faster; dashed: times more operations   (Figure 4)")
    for depth, shade in zip(depths, SHADES[1:], strict=True):
        _line(axes, partial(speedup, depth=depth, cost=0), shade)
        operations = partial(operations_factor, depth=depth, operations_cost=0)
        _line(axes, operations, shade, style="--")
        _end_label(axes, depth + 1, f"γ = {depth}", shade)
    axes.axhline(1, color=INK, linewidth=0.8)
    _alpha_axis(axes)
    axes.set_ylim(0, max(depths) + 1.6)


def _line(axes: Any, value: Callable[[float], float], shade: str, style: str = "-") -> None:
    axes.plot(ALPHAS, [value(alpha) for alpha in ALPHAS], style, color=shade)


def _end_label(axes: Any, height: float, text: str, shade: str) -> None:
    axes.annotate(
        text,
        (1, height),
        xytext=(6, 0),
        textcoords="offset points",
        va="center",
        color=shade,
        weight="bold",
        annotation_clip=False,
    )


def _subtitle(axes: Any, text: str) -> None:
    axes.text(0, 1.03, text, transform=axes.transAxes, color="#666666", fontsize=9.5)


def _alpha_axis(axes: Any) -> None:
    axes.set_xlabel("α, the chance that a guess is accepted")
    axes.set_xlim(0, 1)
