"""The joint choice against every possible one."""

from __future__ import annotations

import itertools
import random

import pytest

from forerun.planning.allocation import PLAIN, Allocator, Line, Share
from forerun.planning.choice import Company
from forerun.planning.cost_curve import CostCurve
from forerun.planning.cost_model import CostModel

CURVES = (
    ((1, 1.0), (4, 1.38), (8, 1.9)),
    ((1, 1.0), (4, 1.02), (5, 1.4), (8, 1.42), (9, 1.8), (16, 1.9)),  # steps
    ((1, 1.0), (2, 2.0)),
)


def _costs(curve: tuple[tuple[int, float], ...], level: float) -> CostModel:
    costs = CostModel(CostCurve(curve))
    costs.calibrate_drafter("draft", lambda depth: level * depth, max_depth=3, num_repeats=1)
    return costs


def _lines(rng: random.Random, num_branches: int) -> list[Line]:
    lines = []
    for drafter, is_costly in (("lookup", False), ("draft", True)):
        first, below = rng.random(), rng.random()
        for width in range(1, num_branches + 1):
            start = 1 - (1 - first) ** (0.5 + width / 2)
            gains = [start * below**level for level in range(3)]
            lines.append(Line(drafter, width, gains, is_costly))
    return lines


def _best_of_all(allocator: Allocator, lines: list[list[Line]]) -> float:
    choices = [
        [PLAIN, *(Share(line, depth) for line in own for depth in range(1, len(line.gains) + 1))]
        for own in lines
    ]
    return max(allocator.evaluate(shares).rate for shares in itertools.product(*choices))


@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("level", [0.0, 0.1, 0.4])
@pytest.mark.parametrize(("num_requests", "num_branches"), [(1, 3), (2, 2), (3, 1)])
def test_close_to_the_best_of_all_allocations(
    curve: tuple[tuple[int, float], ...], level: float, num_requests: int, num_branches: int
) -> None:
    rng, ratios = random.Random(11), []
    for _ in range(12):
        allocator = Allocator(_costs(curve, level), num_requests)
        lines = [_lines(rng, num_branches) for _ in range(num_requests)]
        ratios.append(allocator.best(lines).rate / _best_of_all(allocator, lines))
    assert min(ratios) > 0.97
    assert sum(ratios) / len(ratios) > 0.997


def test_exact_for_one_drafter_that_costs_nothing() -> None:
    rng = random.Random(12)
    for curve in CURVES:
        allocator = Allocator(_costs(curve, 0.0), 4)
        lines = [_lines(rng, 1)[:1] for _ in range(4)]
        best = _best_of_all(allocator, lines)
        assert allocator.best(lines).rate == pytest.approx(best)


def test_guesses_go_where_they_hold() -> None:
    good, bad = Line("lookup", 1, [0.9, 0.8, 0.7], False), Line("lookup", 1, [0.1, 0.0, 0.0], False)
    shares = Allocator(_costs(CURVES[0], 0.0), 2).best([[good], [bad]]).shares
    assert shares[0].depth == 3
    assert shares[1].depth == 0


def test_a_full_pass_leaves_no_room_for_weak_guesses() -> None:
    weak = Line("lookup", 1, [0.03, 0.01, 0.0], False)
    costs = _costs(((1, 1.0), (16, 1.0), (32, 2.0)), 0.0)
    assert Allocator(costs, 1).best([[weak]]).num_nodes > 0
    assert Allocator(costs, 1, Company(num_prompt_tokens=15)).best([[weak]]).num_nodes == 0


def test_the_tokens_of_idle_requests_count() -> None:
    """A guess that pays for one request alone keeps fifteen others waiting."""
    even = Line("lookup", 1, [0.5], False)
    costs = _costs(((1, 1.0), (2, 1.2), (16, 4.0), (17, 4.2)), 0.0)
    assert Allocator(costs, 1).best([[even]]).num_nodes == 1
    beside_prompts = Allocator(costs, 1, Company(num_prompt_tokens=15))
    assert beside_prompts.best([[even]]).num_nodes == 1
    beside_requests = Allocator(costs, 1, Company(num_idle=15))
    assert beside_requests.plain.tokens == 16
    assert beside_requests.best([[even]]).num_nodes == 0
    found = beside_requests.evaluate([Share(even, 1)])
    assert (found.tokens, found.seconds) == pytest.approx((16.5, 4.2))


def test_silence_halves_gains_and_time_alike() -> None:
    """Where the drafter has no guess, the round is plain but for the asking."""
    costs = CostModel(CostCurve(((1, 1.0), (2, 1.4))))
    costs.calibrate_drafter("draft", lambda depth: 0.02 + 0.08 * depth, 2, num_repeats=1)
    allocator = Allocator(costs, 1)
    line = Line("draft", 1, [0.8], is_costly=True)
    said, half = (allocator.evaluate([Share(line._replace(speaking=s), 1)]) for s in (1.0, 0.5))
    assert (said.tokens, said.seconds) == pytest.approx((1.8, 1.5))
    assert (half.tokens, half.seconds) == pytest.approx((1.4, 1.02 + 0.24))


def test_who_speaks_more_often_is_asked() -> None:
    costs = _costs(CURVES[0], 0.0)
    rare = Line("draft", 1, [0.95, 0.9], is_costly=True, speaking=0.1)
    steady = Line("lookup", 1, [0.8, 0.6], is_costly=False)
    (share,) = Allocator(costs, 1).best([[rare, steady]]).shares
    assert share.line == steady
