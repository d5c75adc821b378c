"""The trial: rounds that are timed before the first request."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from forerun.drafters import Drafter
from forerun.engine import LLM
from forerun.engine.setup.trial import Trial
from forerun.speculation.config import SpeculativeConfig
from forerun.speculation.methods import build_drafters
from tests.engine.leaks import assert_nothing_is_held


@pytest.fixture
def guessing(plain: LLM) -> dict[str, Drafter]:
    return build_drafters(SpeculativeConfig(method="random"), plain.target)


class Ticks:
    """A clock that advances by one at every reading."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


def test_rounds_of_an_answer_to_nothing_are_timed(plain: LLM, guessing: dict[str, Drafter]) -> None:
    trial, before = (
        Trial(replace(plain.engine.core, clock=Ticks()), plain.tokenizer),
        plain.metrics(),
    )
    one, more = trial.seconds(), trial.seconds(guessing, 3)
    assert one is not None
    assert more is not None
    assert more > one > 0  # a draft is timed as well
    assert_nothing_is_held(plain)
    assert plain.metrics() == before


def test_a_short_context_has_no_room_for_it(tiny_path: Path, guessing: dict[str, Drafter]) -> None:
    llm = LLM(tiny_path, max_model_len=30, speculative_config=None)
    trial = Trial(llm.engine.core, llm.tokenizer)
    assert trial.seconds() is not None
    assert trial.seconds(guessing, 3) is None


def test_a_drafter_that_fails_has_no_time(plain: LLM, guessing: dict[str, Drafter]) -> None:
    (drafter,) = guessing.values()

    class Failing:
        def __getattr__(self, name: str) -> object:
            return getattr(drafter, name)

        def propose(self, *_: object) -> None:
            raise RuntimeError("no guess today")

    failing = cast("Drafter", Failing())
    trial = Trial(plain.engine.core, plain.tokenizer)
    assert trial.seconds({"failing": failing}, 3) is None
    assert_nothing_is_held(plain)


def test_no_more_rounds_are_run_than_count(plain: LLM, guessing: dict[str, Drafter]) -> None:
    clock = Ticks()
    trial = Trial(replace(plain.engine.core, clock=clock), plain.tokenizer)
    few, many = (_looks(trial, clock, guessing, depth) for depth in (3, 7))
    assert few == many


def _looks(trial: Trial, clock: Ticks, guessing: dict[str, Drafter], depth: int) -> float:
    before = clock.now
    trial.seconds(guessing, depth)
    return clock.now - before
