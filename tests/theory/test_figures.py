"""The drawn curves carry the closed forms' values."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from forerun.errors import InvalidOption, MissingExtra
from forerun.theory.figures import (
    draw_expected_tokens,
    draw_optimal_depth,
    draw_trade_off,
    save_figures,
)


def test_curves_hold_the_papers_values() -> None:
    figure = pytest.importorskip("matplotlib.figure").Figure()
    left, middle, right = figure.subplots(1, 3)
    draw_expected_tokens(left)
    draw_optimal_depth(middle)
    draw_trade_off(right)
    at_80_percent = 160  # α runs from 0 to 1 in steps of 0.005
    heights = [round(float(line.get_ydata()[at_80_percent]), 2) for line in left.lines]
    assert heights == [1.8, 2.95, 3.69, 4.16, 4.57]
    assert [int(line.get_ydata()[at_80_percent]) for line in middle.lines] == [14, 11, 8, 6]
    speed_5, operations_5 = (line.get_ydata()[at_80_percent] for line in right.lines[2:4])
    assert (round(speed_5, 2), round(operations_5, 2)) == (3.69, 1.63)  # Table 1


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["png", "pdf", "svg"])
def test_a_file_is_written(suffix: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    file = tmp_path / f"theory.{suffix}"
    save_figures(file)
    starts = {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}
    assert file.read_bytes().startswith(starts[suffix])


@pytest.mark.slow
def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    a_file = tmp_path / "taken"
    a_file.touch()
    with pytest.raises(InvalidOption, match="cannot write"):
        save_figures(a_file / "theory.png")
    with pytest.raises(InvalidOption, match=r"end it in \.png, \.pdf, \.svg"):
        save_figures(tmp_path / "theory.gif")


def test_without_matplotlib_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtra, match=r"forerun\[plot\]"):
        save_figures(tmp_path / "theory.png")
