"""Cells for the controller: recorded costs, crossed with texts that are steady or out to trick it.

python -m tests.planning.recorded_worlds          every cell, as a table
python -m tests.planning.recorded_worlds --noise  on a machine that stutters
"""

from __future__ import annotations

import json
import math
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import median
from typing import Final

from forerun.planning.controller import Controller, Limits
from forerun.planning.cost_curve import CostCurve, calibration_sizes
from forerun.planning.cost_model import CostModel
from forerun.planning.simulation import Controlled, FixedDepth, SimulatedDrafter, World, simulate

MAX_DEPTH: Final = 8
_RECORDS: Final = json.loads(Path(__file__).with_name("recorded_costs.json").read_text("utf-8"))
CURVES: Final = tuple(_RECORDS["curves"])
DRAFT_COSTS: Final = tuple(_RECORDS["draft_costs"])

Text = list[bool | None]
Writer = Callable[[random.Random, int], Text]


def _by_position(alpha: Callable[[int], float]) -> Writer:
    return lambda rng, num: [rng.random() < alpha(t) for t in range(num)]


def steady(alpha: float) -> Writer:
    return _by_position(lambda _: alpha)


def alternating(stretch_len: int, good: float = 0.9, bad: float = 0.1) -> Writer:
    return _by_position(lambda t: bad if t // stretch_len % 2 else good)


def _hidden_state(enter: float, leave: float, inside: float, outside: float) -> Writer:
    def write(rng: random.Random, num: int) -> Text:
        is_inside, text = False, Text()
        for _ in range(num):
            is_inside = rng.random() >= leave if is_inside else rng.random() < enter
            text.append(rng.random() < (inside if is_inside else outside))
        return text

    return write


def _now_and_then(rng: random.Random, num: int) -> Text:
    """A drafter that is silent on most positions and nearly always right on the others."""
    speaks = _hidden_state(0.05, 0.1, 1.0, 0.0)(rng, num)
    return [rng.random() < 0.95 if spoken else None for spoken in speaks]


TEXTS: Final[Mapping[str, Writer]] = {
    **{f"α = {alpha}": steady(alpha) for alpha in (0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 0.98)},
    "drop": _by_position(lambda t: 0.9 if t < 600 else 0.05),
    "rise": _by_position(lambda t: 0.05 if t < 600 else 0.9),
    "alternating 200": alternating(200),
    "alternating 50": alternating(50),
    "alternating 20": alternating(20),
    "bursts": _hidden_state(0.02, 0.05, 0.97, 0.15),
    "copying": _hidden_state(0.3, 0.07, 1.0, 0.0),
    "now and then": _now_and_then,
}
# In a batch each slot has its own text.
MIXES: Final[Mapping[str, tuple[Writer, ...]]] = {
    "all alike": (steady(0.8),),
    "mixed": tuple(map(steady, (0.05, 0.9, 0.3, 0.98, 0.6, 0.0, 0.8, 0.5))),
    "one good": (steady(0.95), *[steady(0.1)] * 15),
    "out of step": (alternating(60), alternating(60, 0.1, 0.9)),
    "bursts": (TEXTS["bursts"],),
}


def stutter(rng: random.Random) -> float:
    """Lognormal noise, and every fiftieth pass takes five times as long."""
    return math.exp(rng.gauss(0, 0.15)) * (5 if rng.random() < 0.02 else 1)


@cache
def recorded_seconds(curve: str) -> tuple[float, ...]:
    costs = CostCurve(map(tuple, _RECORDS["curves"][curve]["points"]))
    return (0.0, *(costs.seconds(num_tokens) for num_tokens in range(1, 200)))


def world(curve: str, cost: float, writers: tuple[Writer, ...], num_slots: int = 1) -> World:
    texts = [
        writers[slot % len(writers)](random.Random(f"text {slot}"), 6000)
        for slot in range(num_slots)
    ]
    drafter = SimulatedDrafter("drafter", cost, texts)
    num_tokens = 1500 if num_slots < 16 else 500
    return World(recorded_seconds(curve).__getitem__, [drafter], MAX_DEPTH, num_slots, num_tokens)


def controller_for(world: World) -> Controller:
    """Calibrated on the same clock that it will run on."""
    clock = random.Random(99)
    sizes = calibration_sizes(world.num_slots * (1 + MAX_DEPTH))
    costs = CostModel.calibrate(lambda n: world.pass_costs(n) * world.noise(clock), sizes)
    for drafter in world.drafters:
        costs.calibrate_drafter(drafter.name, _measure(drafter.cost, world, clock), MAX_DEPTH)
    return Controller(Limits(MAX_DEPTH), costs)


def _measure(cost: float, world: World, clock: random.Random) -> Callable[[int], float]:
    return lambda depth: cost * depth * world.noise(clock)


@dataclass(frozen=True)
class Figures:
    """What the controller earned in one cell."""

    to_plain: float
    to_best: float  # of all fixed depths of all drafters
    best_to_plain: float
    probe_share: float


def figures(world: World, controller: Controller | None = None) -> Figures:
    controller = controller or controller_for(world)
    run = simulate(world, Controlled(controller, world))
    fixed = {
        (drafter.name, depth): simulate(world, FixedDepth(drafter.name, depth)).rate
        for drafter in world.drafters
        for depth in range(MAX_DEPTH + 1)
    }
    plain, best = fixed[world.drafters[0].name, 0], max(fixed.values())
    probes = controller.allowance.seconds_spent / run.seconds
    return Figures(run.rate / plain, run.rate / best, best / plain, probes)


def every_cell() -> Iterator[tuple[str, str, World]]:
    """Pass cost curve, text, world."""
    for curve in CURVES:
        for cost in DRAFT_COSTS:
            for name, writer in TEXTS.items():
                yield curve, name, world(curve, cost, (writer,))
            for num_slots in (4, 16):
                for name, writers in MIXES.items():
                    cell = world(curve, cost, writers, num_slots)
                    yield curve, f"{name} × {num_slots}", cell


def _print_record(*, is_noisy: bool) -> None:
    rows: dict[tuple[str, str], list[Figures]] = {}
    for curve, name, cell in every_cell():
        cell = replace(cell, noise=stutter) if is_noisy else cell
        found = figures(cell)
        for key in ((curve, name), ("all curves", name), ("all curves", "all texts")):
            rows.setdefault(key, []).append(found)
    print("each line over draft costs", *DRAFT_COSTS)
    print(f"{'curve':<12} {'text':<20} to plain: min median   to best fixed: min median")
    for (curve, name), cells in sorted(rows.items(), reverse=True):
        to_plain, to_best = [c.to_plain for c in cells], [c.to_best for c in cells]
        print(
            f"{curve:<12} {name:<20} {min(to_plain):13.3f} {median(to_plain):6.3f}"
            f" {min(to_best):18.3f} {median(to_best):6.3f}"
        )


if __name__ == "__main__":
    _print_record(is_noisy="--noise" in sys.argv[1:])
