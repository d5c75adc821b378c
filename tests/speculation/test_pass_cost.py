"""What a pass costs, on a shared machine."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any
from unittest.mock import MagicMock

import pytest

from forerun.kernels import Plan, ReferenceKernels, Scores
from forerun.models.llama import LlamaModel
from forerun.speculation.costs import calibration
from forerun.speculation.costs.pass_cost import PassCost
from tests.models_llama.tiny import FAMILIES, TinyCheckpoint

POINTS = ((1, 1.0), (4, 1.3), (8, 1.9))


def curve_seconds(num_tokens: int) -> float:
    return PassCost(POINTS).seconds(num_tokens)


def _ratio(curve: PassCost) -> float:
    return curve.seconds(8) / curve.seconds(1)


def test_straight_lines_between_sizes_and_the_last_slope_beyond() -> None:
    curve = PassCost(POINTS)
    assert [curve.seconds(n) for n in (1, 2, 4, 6, 8, 10)] == pytest.approx(
        [1, 1.1, 1.3, 1.6, 1.9, 2.2]
    )


def test_a_size_never_costs_less_than_a_smaller_one() -> None:
    curve = PassCost(((1, 1.0), (4, 0.8), (8, 1.2)))
    seconds = [curve.seconds(n) for n in range(1, 12)]
    assert seconds == sorted(seconds)


def test_calibration_takes_the_median_and_drops_the_warm_up() -> None:
    calls = itertools.count()

    def measure(num_tokens: int) -> float:
        call = next(calls)
        return 0.01 * num_tokens * (50 if call < 3 or call == 7 else 1)

    curve = PassCost.calibrate(measure, sizes=(1, 2, 4), num_repeats=3)
    assert dict(curve.points) == pytest.approx({1: 0.01, 2: 0.02, 4: 0.04})


def test_one_slow_pass_changes_almost_nothing() -> None:
    curve = PassCost(POINTS)
    before = _ratio(curve)
    curve.observe(8, 5 * 1.9)
    assert _ratio(curve) == pytest.approx(before, rel=0.05)


def test_a_slower_machine_is_not_a_dearer_size() -> None:
    curve = PassCost(POINTS)
    for slowness in [1.0] * 50 + [2.0] * 50:
        curve.observe(8, slowness * 1.9)
    assert curve.seconds(8) == pytest.approx(2 * 1.9, rel=0.02)
    assert _ratio(curve) == pytest.approx(1.9, rel=0.05)


def test_a_wrong_calibration_is_corrected_by_what_is_seen() -> None:
    curve, rng = PassCost(((1, 1.0), (8, 1.1))), random.Random(3)
    for _ in range(300):
        size = rng.choice((1, 8))
        curve.observe(size, (1.0 if size == 1 else 2.5) * rng.lognormvariate(0, 0.1))
    assert _ratio(curve) == pytest.approx(2.5, rel=0.1)


def test_small_sizes_that_are_met_often_are_told_apart() -> None:
    """Five rows take longer than interpolating between four and eight would say."""
    truth = {1: 1.0, 4: 1.3, 5: 1.6, 8: 1.9}
    curve, rng = PassCost(POINTS), random.Random(4)
    for _ in range(400):
        size = rng.choice(list(truth))
        curve.observe(size, truth[size] * rng.lognormvariate(0, 0.05))
    found = [curve.seconds(size) / curve.seconds(1) for size in truth]
    assert found == pytest.approx(list(truth.values()), rel=0.04)
    assert curve.seconds(6) / curve.seconds(1) == pytest.approx(1.7, rel=0.04)


def test_a_slower_machine_is_not_a_dearer_size_that_was_just_told_apart() -> None:
    curve = PassCost(POINTS)
    for idx in range(60):
        curve.observe(5, curve_seconds(5) * (1.25 if idx >= 15 else 1))
    assert curve.seconds(5) == pytest.approx(1.25 * curve_seconds(5), rel=0.02)
    assert curve.seconds(5) / curve.seconds(1) == pytest.approx(curve_seconds(5), rel=0.03)


def test_a_size_that_takes_less_than_a_smaller_one_does_not_drift() -> None:
    truth = {1: 1.0, 4: 1.3, 5: 1.6, 6: 1.5, 8: 1.9}
    curve, rng = PassCost(POINTS), random.Random(5)
    for _ in range(4000):
        size = rng.choice(list(truth))
        curve.observe(size, truth[size] * rng.lognormvariate(0, 0.02))
    assert curve.speed == pytest.approx(1, rel=0.1)
    found = [curve.seconds(size) / curve.seconds(1) for size in (4, 5, 6, 8)]
    assert found == pytest.approx([1.3, 1.6, 1.6, 1.9], rel=0.05)
    assert curve.seconds(16) / curve.seconds(1) > 2.5


def test_a_prompt_chunk_teaches_nothing_about_small_passes() -> None:
    curve = PassCost(POINTS)
    curve.observe(256, 60.0)
    assert [curve.seconds(n) for n, _ in POINTS] == pytest.approx([cost for _, cost in POINTS])
    assert curve.seconds(256) == pytest.approx(60.0)


def test_a_knee_beyond_the_calibrated_sizes_is_found_at_once() -> None:
    curve = PassCost(((1, 1.0), (8, 1.0)))
    assert curve.seconds(128) == pytest.approx(1.0)
    for num_tokens in (128, 64, 32, 20, 16):
        curve.observe(num_tokens, num_tokens / 16)
    assert [curve.seconds(n) for n in (8, 16, 32, 64, 128)] == pytest.approx(
        [1, 1, 2, 4, 8], rel=0.1
    )


@pytest.mark.parametrize("points", [(), ((1, 1.0), (1, 2.0)), ((0, 1.0),), ((1, 0.0),)])
def test_impossible_points_are_a_mistake_of_ours(points: tuple[tuple[int, float], ...]) -> None:
    with pytest.raises(AssertionError):
        PassCost(points)


def test_a_row_of_sizes_is_the_same_as_one_by_one() -> None:
    for points in (POINTS, ((3, 2.0),), ((2, 1.0), (3, 1.0), (9, 5.0))):
        curve = PassCost(points)
        for first in range(1, 12):
            alone = [curve.seconds(n) for n in range(first, first + 9)]
            assert curve.seconds_from(first, 9) == pytest.approx(alone)
    assert PassCost(POINTS).seconds_from(5, 0) == []


@pytest.mark.parametrize(("spread", "least", "most"), [(0.001, 3, 3), (0.1, 12, 60)])
def test_calibration_goes_on_until_costs_are_known(spread: float, least: int, most: int) -> None:
    rng, calls = random.Random(4), itertools.count()

    def measure(num_tokens: int) -> float:
        next(calls)
        return num_tokens * rng.lognormvariate(0, spread)

    curve = PassCost.calibrate(measure, sizes=(1, 4), num_repeats=3)
    num_rounds = next(calls) // 2 - 1
    assert least <= num_rounds <= most
    assert curve.seconds(4) / curve.seconds(1) == pytest.approx(4, rel=0.08)


@pytest.mark.parametrize(("seconds", "largest"), [(0.005, 16), (0.05, 8)])
def test_larger_passes_are_timed_where_that_is_quick_however_slow_the_very_first_one_is(
    monkeypatch: pytest.MonkeyPatch, seconds: float, largest: int
) -> None:
    calls = itertools.count()

    def measure(num_tokens: int) -> float:
        return 10.0 if next(calls) == 0 else seconds * (1 + num_tokens / 16)

    monkeypatch.setattr(calibration, "pass_timer", lambda *_args, **_kwargs: measure)
    monkeypatch.setattr(calibration, "_per_key", lambda *_args: (0.0, 0.0))
    model = MagicMock(spec=LlamaModel, kernels=MagicMock(begins_plain=False))
    found = calibration.calibrate(model, 136)
    assert [size for size, _ in found.points] == [n for n in (1, 2, 4, 8, 16) if n <= largest]
    assert found.seconds(8) == pytest.approx(1.5 * seconds)


@pytest.mark.parametrize(
    ("seconds", "begins", "num"), [(0.005, True, 3), (0.05, True, 1), (0.005, False, 1)]
)
def test_plain_passes_are_timed_as_they_run(
    monkeypatch: pytest.MonkeyPatch, seconds: float, begins: bool, num: int
) -> None:
    """Several in a row are timed if each begins the next and they are quick."""
    asked = list[int]()

    def timer(*_args: object, num_in_a_row: int = 1) -> Callable[[int], float]:
        asked.append(num_in_a_row)
        return lambda num_tokens: seconds * (1 + num_tokens / 16)

    monkeypatch.setattr(calibration, "pass_timer", timer)
    model = MagicMock(spec=LlamaModel, kernels=MagicMock(begins_plain=begins))
    model.config = MagicMock(max_len=2048)
    calibration.calibrate(model, 136)
    assert asked[-1] == num


@pytest.mark.parametrize("num_in_a_row", [1, 3])
def test_the_head_start_of_a_pass_belongs_to_it(
    monkeypatch: pytest.MonkeyPatch, num_in_a_row: int
) -> None:
    model = LlamaModel.load(TinyCheckpoint(FAMILIES["smollm2"]), ReferenceKernels())
    monkeypatch.setattr(ReferenceKernels, "head_start", 1000.0)
    plans, draw = list[Plan](), model.draw

    def noted(plan: Plan, *args: Any) -> Scores:
        plans.append(plan)
        return draw(plan, *args)

    monkeypatch.setattr(model, "draw", noted)
    measure = calibration.pass_timer(model, 3, num_in_a_row=num_in_a_row)
    assert 1000 < measure(1) < 1100
    assert [plan.next_slots is not None for plan in plans] == [True] * (num_in_a_row - 1) + [False]
    assert 1000 < measure(3) < 1100
    assert len(plans) == num_in_a_row + 1
