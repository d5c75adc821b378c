"""The allocator's joint choice, compared with every possible choice."""

from __future__ import annotations

import itertools
import random

import pytest

from forerun.speculation.acceptance import Acceptance
from forerun.speculation.allocation import Allocator, Chosen
from forerun.speculation.choice import Way
from forerun.speculation.costs import Costs
from forerun.speculation.costs.draft_cost import DraftCost
from forerun.speculation.costs.pass_cost import PassCost
from forerun.types import Proposal

CURVES = (
    ((1, 1.0), (4, 1.38), (8, 1.9)),
    ((1, 1.0), (4, 1.02), (5, 1.4), (8, 1.42), (9, 1.8), (16, 1.9)),  # steps
    ((1, 1.0), (2, 2.0)),
)


def _costs(curve: tuple[tuple[int, float], ...], level: float) -> Costs:
    return Costs(PassCost(curve), {"draft": DraftCost(0.0, level)})


def _way(gains: list[float], *, is_costly: bool = False, width: int = 1, silent: int = 0) -> Way:
    """Make a way with these gains, whose drafter had no guess `silent` times before."""
    acceptance = Acceptance(Acceptance())
    for _ in range(silent):
        acceptance.speaking.observe(False)
    pick = None if is_costly else Proposal.chain(range(len(gains)))
    drafter = "draft" if is_costly else "lookup"
    return Way(drafter, width, width, gains, pick, acceptance)


def _ways(rng: random.Random, num_branches: int) -> list[Way]:
    ways = []
    for is_costly in (False, True):
        first, below = rng.random(), rng.random()
        for width in range(1, num_branches + 1):
            start = 1 - (1 - first) ** (0.5 + width / 2)
            gains = [start * below**level for level in range(3)]
            ways.append(_way(gains, is_costly=is_costly, width=width))
    return ways


def _best_of_all(allocator: Allocator, ways: list[list[Way]]) -> float:
    choices: list[list[Chosen]] = [
        [None, *((way, depth) for way in own for depth in range(1, len(way.gains) + 1))]
        for own in ways
    ]
    return max(map(allocator.rate, itertools.product(*choices)))


def _num_guesses(chosen: list[Chosen]) -> int:
    return sum(way.width * depth for way, depth in filter(None, chosen))


@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("level", [0.0, 0.1, 0.4])
@pytest.mark.parametrize(("num_requests", "num_branches"), [(1, 3), (2, 2), (3, 1)])
def test_close_to_the_best_of_all_allocations(
    curve: tuple[tuple[int, float], ...], level: float, num_requests: int, num_branches: int
) -> None:
    rng, ratios = random.Random(11), []
    for _ in range(12):
        allocator = Allocator(_costs(curve, level), num_requests)
        ways = [_ways(rng, num_branches) for _ in range(num_requests)]
        ratios.append(allocator.rate(allocator.best(ways)) / _best_of_all(allocator, ways))
    assert min(ratios) > 0.97
    assert sum(ratios) / len(ratios) > 0.997


def test_exact_for_one_drafter_that_costs_nothing() -> None:
    rng = random.Random(12)
    for curve in CURVES:
        allocator = Allocator(_costs(curve, 0.0), 4)
        ways = [_ways(rng, 1)[:1] for _ in range(4)]
        best = _best_of_all(allocator, ways)
        assert allocator.rate(allocator.best(ways)) == pytest.approx(best)


def test_guesses_go_where_they_are_accepted() -> None:
    good, bad = _way([0.9, 0.8, 0.7]), _way([0.1, 0.0, 0.0])
    chosen = Allocator(_costs(CURVES[0], 0.0), 2).best([[good], [bad]])
    assert chosen == [(good, 3), None]


def test_a_full_pass_leaves_no_room_for_weak_guesses() -> None:
    weak = _way([0.03, 0.01, 0.0])
    costs = _costs(((1, 1.0), (16, 1.0), (32, 2.0)), 0.0)
    assert _num_guesses(Allocator(costs, 1).best([[weak]])) > 0
    assert _num_guesses(Allocator(costs, 1, num_prompt_tokens=15).best([[weak]])) == 0


def test_the_tokens_of_idle_requests_count() -> None:
    """A guess that pays for one request alone does not where it keeps fifteen others waiting."""
    even = _way([0.5])
    costs = _costs(((1, 1.0), (2, 1.2), (16, 4.0), (17, 4.2)), 0.0)
    assert _num_guesses(Allocator(costs, 1).best([[even]])) == 1
    assert _num_guesses(Allocator(costs, 1, num_prompt_tokens=15).best([[even]])) == 1
    beside_requests = Allocator(costs, 16)
    assert beside_requests.rate([None]) == pytest.approx(16 / 4.0)
    assert _num_guesses(beside_requests.best([[even]])) == 0
    assert beside_requests.rate([(even, 1)]) == pytest.approx(16.5 / 4.2)


def test_silence_scales_gains_and_time_alike() -> None:
    """If the drafter has no guess, the round costs a plain one and the call of the drafter."""
    costs = Costs(PassCost(((1, 1.0), (2, 1.4))), {"draft": DraftCost(0.02, 0.08)})
    allocator = Allocator(costs, 1)
    spoken, silent = _way([0.8], is_costly=True), _way([0.8], is_costly=True, silent=4)
    part = silent.speaking
    assert 0.1 < part < 0.5
    assert allocator.seconds([(spoken, 1)]) == pytest.approx(1.5)
    assert allocator.seconds([(silent, 1)]) == pytest.approx(1.5 * part + 1.02 * (1 - part))
    assert allocator.rate([(silent, 1)]) == pytest.approx(
        (1 + 0.8 * part) / (1.5 * part + 1.02 * (1 - part))
    )


def test_who_speaks_more_often_is_asked() -> None:
    rare, steady = _way([0.95, 0.9], is_costly=True, silent=50), _way([0.8, 0.6])
    (one,) = Allocator(_costs(CURVES[0], 0.0), 1).best([[rare, steady]])
    assert one == (steady, 2)


def test_guesses_of_a_whole_round_are_not_priced_one_by_one() -> None:
    costs = _costs(CURVES[2], 0.1)
    costs.expect_whole("draft", 1.2, 1.0)
    way = _way([0.3, 0.1, 0.05], is_costly=True)
    assert Allocator(costs, 1).best([[way]]) == [(way, 3)]
    costs.is_alone = False
    assert Allocator(costs, 2).best([[way], [way]]) == [None, None]
