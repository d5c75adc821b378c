"""Never slower, on a simulated clock with recorded costs.

Required on a clock without noise: never under 0.98 of plain decoding, and at most one cell in a
hundred under 0.95 of the best fixed depth on the same text. All cells are in the record that
`simulated_record` writes; some hard ones are tested here.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest

from forerun.speculation.controller import Controller
from forerun.speculation.costs import Costs
from forerun.speculation.costs.pass_cost import PassCost
from recorded_worlds import (
    HELD_OUT,
    MIXES,
    TEXTS,
    Cell,
    Figures,
    controller_for,
    every_cell,
    figures,
    steady,
    stutter,
    world,
)
from simulated_record import Row, measure, measured, misses, table
from simulation import MISS, FixedDepth, SimulatedDrafter, World, simulate

HARD = ("α = 0.0", "α = 0.4", "α = 0.98", "drop", "alternating 50", "bursts", "copying")
MACHINES = (("cpu int8", 0.0),)
MORE_MACHINES = (("gpu flat", 0.25), ("cpu int8", 0.1), ("cpu fast", 0.5))
BATCHES = (("cpu int8", "mixed", 4), ("gpu flat", "mixed", 16), ("row by row", "out of step", 4))

RECORD = Path(__file__).parents[2] / "bench" / "records" / "controller-simulated.json"


def _holds(found: Figures) -> bool:
    return found.to_plain >= 0.98 and found.to_best >= 0.95


@pytest.mark.parametrize(("curve", "cost"), MACHINES)
@pytest.mark.parametrize("text", HARD)
def test_one_request(curve: str, cost: float, text: str) -> None:
    found = figures(world(curve, cost, (TEXTS[text],)))
    assert _holds(found), found


@pytest.mark.slow
@pytest.mark.parametrize(("curve", "cost"), MORE_MACHINES)
@pytest.mark.parametrize("text", HARD)
def test_one_request_on_more_machines(curve: str, cost: float, text: str) -> None:
    test_one_request(curve, cost, text)


@pytest.mark.parametrize("text", ["α = 0.0", "α = 0.98", "bursts"])
def test_where_nothing_pays(text: str) -> None:
    found = figures(world("row by row", 0.02, (TEXTS[text],)))
    assert found.best_to_plain < 1.001
    assert _holds(found), found


@pytest.mark.parametrize(("curve", "mix", "num_slots"), BATCHES)
def test_a_batch(curve: str, mix: str, num_slots: int) -> None:
    cell = world(curve, 0.1, MIXES[mix], num_slots)
    found = figures(replace(cell, num_tokens=cell.num_tokens // 2))
    assert _holds(found), found


@pytest.mark.parametrize("curve", ["cpu int8", "gpu flat"])
@pytest.mark.parametrize("text", ["α = 0.0", "α = 0.8", "alternating 200"])
def test_a_machine_that_stutters(curve: str, text: str) -> None:
    found = figures(replace(world(curve, 0.1, (TEXTS[text],)), noise=stutter))
    assert _holds(found), found


def test_the_record_is_what_comes_out() -> None:
    """A few of the record's cells, run again. The simulation is deterministic, but the exp and log
    of another machine may round a close decision the other way."""
    recorded = json.loads(RECORD.read_text(encoding="utf-8"))
    assert recorded["seed"] == HELD_OUT
    assert {key(row) for row in recorded["cells"]} == {
        (cell, is_noisy) for cell in every_cell() for is_noisy in (False, True)
    }
    exact = [row for row in recorded["cells"] if not row["is_noisy"]]
    assert all(row["to_plain"] >= 0.98 for row in exact)
    assert sum(row["to_best"] < 0.95 for row in exact) <= 0.01 * len(exact)
    assert fmean(row["to_plain"] for row in exact) > 0.995 * 1.2586  # of ADR 004's controller
    for row in recorded["cells"][17::331]:
        cell, is_noisy = key(row)
        again = measured(cell, is_noisy=is_noisy)
        assert again == pytest.approx(row, abs=0.01)


def test_the_docs_show_the_record() -> None:
    rows = json.loads(RECORD.read_text(encoding="utf-8"))["cells"]
    docs = (RECORD.parents[2] / "docs" / "controller.md").read_text(encoding="utf-8")
    assert table(rows) in docs
    assert misses(rows) in docs


def key(row: Row) -> tuple[Cell, bool]:
    return Cell(**{name: row[name] for name in Cell.__dataclass_fields__}), row["is_noisy"]


@pytest.mark.soak
def test_every_cell() -> None:
    recorded = json.loads(RECORD.read_text(encoding="utf-8"))["cells"]
    for again, row in zip(measure(list(every_cell())), recorded, strict=True):
        assert again == pytest.approx(row, abs=0.01)


def test_two_drafters_beat_either_alone() -> None:
    lookup = world("cpu int8", 0.0, (TEXTS["now and then"],)).drafters[0]
    draft = world("cpu int8", 0.1, (TEXTS["α = 0.6"],)).drafters[0]
    both = [replace(lookup, name="lookup"), replace(draft, name="draft")]
    found = figures(replace(world("cpu int8", 0.0, (TEXTS["drop"],)), drafters=both))
    assert found.to_best > 1.02


def test_a_calibration_that_was_wrong_is_found_out() -> None:
    """Calibration says that passes are cheap at any size; in truth no guess pays."""
    cell = world("row by row", 0.0, (TEXTS["α = 0.8"],))
    misled = controller_for(replace(cell, pass_costs=lambda n: 1 + 0.01 * n))
    assert figures(replace(cell, num_tokens=3000), misled).to_plain > 0.9


@pytest.mark.parametrize("alpha", [0.4, 0.8])
def test_costs_beyond_the_calibrated_sizes_are_learnt(alpha: float) -> None:
    """Calibrated sizes, up to eight tokens, cost the same; sixteen requests already fill a pass."""
    drafter = world("gpu flat", 0.0, (steady(alpha),), 16).drafters[0]
    cell = World(lambda n: max(1.0, n / 16), [drafter], 8, num_slots=16, num_tokens=300)
    costs = Costs(PassCost.calibrate(cell.pass_costs, (1, 2, 4, 8)))
    assert figures(cell, Controller(costs)).to_plain > 0.96


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
    monkeypatch.setattr(Controller, "_probe", lambda *_: None)
    assert not _holds(figures(cell))


def test_a_silent_drafter_picks_nothing() -> None:
    drafter = SimulatedDrafter("lookup", 0.0, [[True, None, False]])
    assert drafter.guesses(0, 0, 4) == [0]
    assert drafter.guesses(0, 1, 4) == []
    assert drafter.guesses(0, 2, 2) == [MISS, 3]
