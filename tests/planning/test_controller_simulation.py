"""Never slower, on a simulated clock with recorded costs.

Every cell: at least 0.98 of plain decoding and 0.95 of the best fixed depth on the same text. The
whole table is `python -m tests.planning.recorded_worlds`; here are the cells that are hard.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from forerun.planning.simulation import FixedDepth, SimulatedDrafter, World, simulate
from tests.planning.recorded_worlds import (
    CURVES,
    MIXES,
    TEXTS,
    Figures,
    controller_for,
    figures,
    stutter,
    world,
)

HARD = ("α = 0.0", "α = 0.4", "α = 0.98", "drop", "alternating 50", "bursts", "copying")


def _holds(found: Figures) -> bool:
    return found.to_plain >= 0.98 and found.to_best >= 0.95


@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("text", HARD)
def test_one_request(curve: str, text: str) -> None:
    for cost in (0.0, 0.1, 0.5):
        found = figures(world(curve, cost, (TEXTS[text],)))
        assert _holds(found), (cost, found)


@pytest.mark.parametrize("curve", ["cpu int8", "gpu flat", "row by row"])
@pytest.mark.parametrize("mix", ["mixed", "out of step"])
@pytest.mark.parametrize("num_slots", [4, 16])
def test_a_batch(curve: str, mix: str, num_slots: int) -> None:
    found = figures(world(curve, 0.1, MIXES[mix], num_slots))
    assert _holds(found), found


@pytest.mark.parametrize("curve", ["cpu int8", "gpu flat", "row by row"])
@pytest.mark.parametrize("text", ["α = 0.0", "α = 0.8", "alternating 200"])
def test_a_machine_that_stutters(curve: str, text: str) -> None:
    found = figures(replace(world(curve, 0.1, (TEXTS[text],)), noise=stutter))
    assert _holds(found), found


def test_two_drafters_beat_either_alone() -> None:
    lookup = world("cpu int8", 0.0, (TEXTS["now and then"],)).drafters[0]
    draft = world("cpu int8", 0.1, (TEXTS["α = 0.6"],)).drafters[0]
    both = [replace(lookup, name="lookup"), replace(draft, name="draft")]
    found = figures(replace(world("cpu int8", 0.0, (TEXTS["drop"],)), drafters=both))
    assert found.to_best > 1.02


def test_a_calibration_that_was_wrong_is_found_out() -> None:
    """Measured when passes were cheap at any size; in truth no guess pays."""
    cell = world("row by row", 0.0, (TEXTS["α = 0.8"],))
    misled = controller_for(replace(cell, pass_costs=lambda n: 1 + 0.01 * n))
    assert figures(replace(cell, num_tokens=6000), misled).to_plain > 0.9


def test_probes_cost_about_a_hundredth() -> None:
    found = figures(world("cpu int8", 0.5, (TEXTS["α = 0.0"],)))
    assert 0 < found.probe_share < 0.013


def _always_deep(cell: World) -> float:
    plain = simulate(cell, FixedDepth("drafter", 0)).rate
    return simulate(cell, FixedDepth("drafter", 8)).rate / plain


def test_these_bounds_catch_a_controller_that_always_guesses() -> None:
    assert _always_deep(world("cpu int8", 0.0, (TEXTS["α = 0.0"],))) < 0.6
    assert _always_deep(world("cpu int8", 0.5, (TEXTS["α = 0.6"],))) < 0.6


def test_these_bounds_catch_a_controller_that_never_explores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cell = world("cpu int8", 0.1, (TEXTS["rise"],))
    assert _holds(figures(cell))
    timid = controller_for(cell)
    monkeypatch.setattr(timid.allowance, "affords", lambda _: False)
    assert not _holds(figures(cell, timid))


def test_a_silent_drafter_offers_nothing() -> None:
    drafter = SimulatedDrafter("lookup", 0.0, [[True, None, False]])
    assert drafter.guesses(0, 0, 4) == [0]
    assert drafter.guesses(0, 1, 4) == []
    assert drafter.guesses(0, 2, 2) == [-1, 3]
