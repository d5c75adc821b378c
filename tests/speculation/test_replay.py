"""What the default speculation earns on recorded answers, on a simulated clock."""

from __future__ import annotations

import math
from statistics import fmean, median

import pytest

from forerun.bench.prompts.workloads import Kind
from replay import geometric_mean, ratios, recorded_texts


@pytest.fixture(scope="module")
def found() -> dict[str, list[float]]:
    return ratios(recorded_texts())


def test_no_class_loses(found: dict[str, list[float]]) -> None:
    assert min(median(rows) for rows in found.values()) > 0.97
    assert min(fmean(rows) for rows in found.values()) > 0.97


def test_all_classes_together(found: dict[str, list[float]]) -> None:
    assert math.exp(fmean(math.log(fmean(rows)) for rows in found.values())) > 1.17


def test_free_classes_win_together_and_copying_ones_clearly(found: dict[str, list[float]]) -> None:
    assert geometric_mean(found, Kind.FREE) > 1.0
    assert geometric_mean(found, Kind.COPY) > 1.25


def test_no_answer_loses_much(found: dict[str, list[float]]) -> None:
    assert min(min(rows) for rows in found.values()) > 0.85


def test_the_same_texts_earn_the_same(found: dict[str, list[float]]) -> None:
    assert ratios(recorded_texts()) == found
