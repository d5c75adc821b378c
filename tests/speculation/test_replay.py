"""What the default speculation earns on recorded answers, on a simulated clock."""

from __future__ import annotations

from statistics import fmean, median

import pytest

from forerun.bench.prompts.workloads import Kind
from replay import (
    NEOVERSE,
    XEON,
    Machine,
    geometric_mean,
    geometric_mean_of_means,
    ratios,
    recorded_texts,
)


@pytest.fixture(scope="module", params=[NEOVERSE, XEON], ids=lambda machine: machine.name)
def machine(request: pytest.FixtureRequest) -> Machine:
    assert isinstance(request.param, Machine)
    return request.param


@pytest.fixture(scope="module")
def found(machine: Machine) -> dict[str, list[float]]:
    return ratios(recorded_texts(), machine)


def test_no_class_loses(found: dict[str, list[float]]) -> None:
    assert min(median(rows) for rows in found.values()) > 0.97
    assert min(fmean(rows) for rows in found.values()) > 0.97


def test_all_classes_together(found: dict[str, list[float]]) -> None:
    assert geometric_mean_of_means(found) > 1.18


def test_free_classes_win_together_and_copying_ones_clearly(found: dict[str, list[float]]) -> None:
    assert geometric_mean(found, Kind.FREE) > 1.0
    assert geometric_mean(found, Kind.COPY) > 1.3


def test_no_answer_loses_much(found: dict[str, list[float]]) -> None:
    assert min(min(rows) for rows in found.values()) > 0.85


@pytest.mark.slow
def test_the_same_texts_earn_the_same(machine: Machine, found: dict[str, list[float]]) -> None:
    assert ratios(recorded_texts(), machine) == found
