"""The table behind `forerun plan`."""

from __future__ import annotations

import pytest

from forerun.errors import InvalidOption
from forerun.theory.closed_forms import optimal_depth, speedup
from forerun.theory.depth_table import depth_table
from forerun.theory.verify_cost import LinearVerifyCost, MeasuredVerifyCost


def test_rows_hold_every_closed_form() -> None:
    row = depth_table(0.8, 0.1, 10, operations_cost=0.0).rows[5]
    assert row.depth == 5
    assert row.expected_tokens == pytest.approx(3.68928)
    assert row.expected_accepted == pytest.approx(2.68928)
    assert row.speedup == pytest.approx(3.68928 / 1.5)
    assert row.operations_factor == pytest.approx(6 / 3.68928)
    assert row.memory_access_factor == pytest.approx(1 / 3.68928)


def test_the_best_row_is_the_optimal_depth() -> None:
    pass_cost = LinearVerifyCost(0.2)
    table = depth_table(0.8, 0.1, 10, pass_cost)
    assert table.best_depth == optimal_depth(0.8, 0.1, 10, pass_cost) == 3
    assert table.best.speedup == speedup(0.8, 3, 0.1, pass_cost)
    assert len(table.rows) == 11


def test_the_sentence_names_the_best_depth() -> None:
    meaning = depth_table(0.8, 0.1, 10).meaning()
    assert meaning.startswith("Depth 6 is best: 3.95 tokens a round, 2.47× as fast")


def test_the_sentence_says_when_the_table_ends_too_soon() -> None:
    assert "Depth 4, the deepest in this table, is best" in depth_table(0.8, 0, 4).meaning()


def test_the_sentence_says_why_nothing_helps() -> None:
    dear_drafter = depth_table(0.3, 0.3, 6)
    assert dear_drafter.best_depth == 0
    assert "a guess costs 0.3 of a target pass and is accepted with probability 0.3" in (
        dear_drafter.meaning()
    )
    dear_pass = depth_table(0.3, 0.1, 6, LinearVerifyCost(0.5))
    assert dear_pass.best_depth == 0
    assert "the longer target pass costs more" in dear_pass.meaning()


def test_depths_that_were_not_measured_are_refused() -> None:
    with pytest.raises(InvalidOption, match="measured up to depth 4"):
        depth_table(0.8, 0.1, 5, MeasuredVerifyCost(((4, 1.2),)))
    with pytest.raises(InvalidOption, match="nothing to compare"):
        depth_table(0.8, 0.1, 0)
