"""Cells for the controller: recorded costs, crossed with steady and with adversarial texts.

The controller's constants were chosen on texts of seed `TUNING`; records and tests use seed
`HELD_OUT`.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import median
from typing import Final

from forerun.speculation.controller import Controller
from forerun.speculation.costs import Costs
from forerun.speculation.costs.draft_cost import DraftCost
from forerun.speculation.costs.pass_cost import PassCost
from simulation import Controlled, FixedDepth, Run, SimulatedDrafter, World, simulate

MAX_DEPTH: Final = 8
_SIZES: Final = (1, 2, 3, 4, 6, 9, 16, 32)
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
    """A drafter that guesses nothing at most positions and is nearly always right elsewhere."""
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
    costs = PassCost(map(tuple, _RECORDS["curves"][curve]["points"]))
    return (0.0, *(costs.seconds(num_tokens) for num_tokens in range(1, 200)))


TUNING: Final = 1
HELD_OUT: Final = 2


@cache
def texts(writers: tuple[Writer, ...], num_slots: int, seed: int) -> list[Text]:
    return [
        writers[slot % len(writers)](random.Random(f"text {slot} of {seed}"), 6000)
        for slot in range(num_slots)
    ]


def world(
    curve: str,
    cost: float,
    writers: tuple[Writer, ...],
    num_slots: int = 1,
    seed: int = HELD_OUT,
) -> World:
    drafter = SimulatedDrafter("drafter", cost, texts(writers, num_slots, seed))
    num_tokens = 1500 if num_slots < 16 else 500
    return World(recorded_seconds(curve).__getitem__, [drafter], MAX_DEPTH, num_slots, num_tokens)


def calibration_sizes(max_num_tokens: int) -> tuple[int, ...]:
    """Return pass sizes to measure, up to `max_num_tokens`: dense at first, then doubling."""
    sizes = [size for size in _SIZES if size < max_num_tokens]
    while sizes and 2 * sizes[-1] < max_num_tokens:
        sizes.append(2 * sizes[-1])
    return (*sizes, max_num_tokens)


def controller_for(world: World) -> Controller:
    """Return a controller that is calibrated on the clock that it will run on."""
    clock = random.Random(99)
    sizes = calibration_sizes(world.num_slots * (1 + MAX_DEPTH))
    target = PassCost.calibrate(lambda n: world.pass_costs(n) * world.noise(clock), sizes)
    drafters = {d.name: draft_cost(_measure(d.cost, world, clock)) for d in world.drafters}
    return Controller(Costs(target, drafters))


def draft_cost(measure: Callable[[int], float], num_repeats: int = 5) -> DraftCost:
    """Return a drafter's cost; `measure(depth)` asks it once, for one request, for seconds."""
    measure(MAX_DEPTH)
    turns = [(measure(1), measure(MAX_DEPTH)) for _ in range(num_repeats)]
    shallow, deep = (median(column) for column in zip(*turns, strict=True))
    per_level = max(0.0, deep - shallow) / (MAX_DEPTH - 1)
    return DraftCost(max(0.0, shallow - per_level), per_level)


def _measure(cost: float, world: World, clock: random.Random) -> Callable[[int], float]:
    return lambda depth: cost * depth * world.noise(clock)


@dataclass(frozen=True)
class Figures:
    """The controller's results in one cell, as ratios of rates."""

    to_plain: float
    to_best: float  # of all fixed depths of all drafters
    best_to_plain: float
    probe_share: float


def figures(world: World, controller: Controller | None = None) -> Figures:
    controller = controller or controller_for(world)
    run = simulate(world, Controlled(controller, world))
    rates = [
        fixed.rate_at(world.pass_costs, drafter.cost)
        for drafter in world.drafters
        for fixed in _fixed_runs(drafter, world)
    ]
    plain, best = rates[0], max(rates)
    probes = controller.probe_seconds / run.seconds
    return Figures(run.rate / plain, run.rate / best, best / plain, probes)


_FIXED: Final[dict[tuple[int, int, int], list[Run]]] = {}


def _fixed_runs(drafter: SimulatedDrafter, world: World) -> list[Run]:
    """Run every fixed depth, from 0 on, on this drafter's texts once, for all machines' prices."""
    key = (id(drafter.outcomes), world.num_slots, world.num_tokens)
    if key not in _FIXED:
        alone = replace(world, drafters=[drafter])
        _FIXED[key] = [
            simulate(alone, FixedDepth(drafter.name, depth)) for depth in range(MAX_DEPTH + 1)
        ]
    return _FIXED[key]


@dataclass(frozen=True)
class Cell:
    """A machine, a drafter's cost, and a text, or a mix of texts for a batch."""

    curve: str
    draft_cost: float
    text: str
    num_slots: int
    seed: int

    def world(self, *, is_noisy: bool = False) -> World:
        writers = (TEXTS[self.text],) if self.num_slots == 1 else MIXES[self.text]
        made = world(self.curve, self.draft_cost, writers, self.num_slots, self.seed)
        return replace(made, noise=stutter) if is_noisy else made


def every_cell(seed: int = HELD_OUT) -> Iterator[Cell]:
    for curve in CURVES:
        for cost in DRAFT_COSTS:
            for num_slots, names in ((1, TEXTS), (4, MIXES), (16, MIXES)):
                for name in names:
                    yield Cell(curve, cost, name, num_slots, seed)
