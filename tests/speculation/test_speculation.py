"""What the controller is told of a step, and when it is not asked."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from forerun.drafters import Budget
from forerun.drafters.base import RequestView
from forerun.engine import LLM
from forerun.speculation.controller import Controller
from forerun.speculation.costs import Costs
from forerun.speculation.costs.draft_cost import DraftCost
from forerun.speculation.costs.pass_cost import PassCost
from forerun.speculation.guarded_drafters import GuardedDrafters
from forerun.speculation.speculation import Speculation
from forerun.speculation.step_times import StepTimes
from forerun.types import FloatArray, Proposal, SamplingParams, Verdict

PARAMS = SamplingParams(temperature=0, max_tokens=100, ignore_eos=True)


class Picking:
    """Always picks the same guesses."""

    picks = True

    def __init__(self, tokens: tuple[int, ...]) -> None:
        self.tokens = tokens
        self.budgets: list[Budget] = []

    num_requests = 0

    def begin(self, request: RequestView) -> None: ...

    def propose(self, _: Sequence[RequestView], budgets: Sequence[Budget]) -> list[Proposal]:
        self.budgets += budgets
        return [Proposal.chain(self.tokens[: budget.depth]) for budget in budgets]

    def commit(self, request: RequestView, verdict: Verdict) -> None: ...

    def end(self, request: RequestView) -> None: ...


class CountingCosts(Costs):
    """A pass over n tokens costs 1 + n; counts the passes that are learnt from."""

    def __init__(self) -> None:
        super().__init__(PassCost(((1, 2.0), (2, 3.0), (4, 5.0))))
        self.num_passes = 0

    def observe_pass(self, *args: Any, **options: Any) -> None:
        self.num_passes += 1
        super().observe_pass(*args, **options)


def passes_heard(plain: LLM, drafter: Picking, **others: Picking) -> tuple[int, dict[str, int]]:
    """Return how many passes one answer's costs are learnt from, and its choices."""
    llm = plain.with_speculation({"method": "suffix", "adaptive": False})
    core, costs = llm.engine.core, CountingCosts()
    drafters = GuardedDrafters({**others, "suffix": drafter}, core.model.config.vocab_size)
    speculation = Speculation(drafters, Controller(costs), Budget(3))
    llm.engine.core = replace(core, speculation=speculation)
    stats = llm.generate("abc", PARAMS)[0].outputs[0].stats
    return costs.num_passes, stats["choices"]


def test_silent_rounds_take_no_time_of_the_controller(plain: LLM) -> None:
    num_heard, choices = passes_heard(plain, Picking(()))
    assert choices["silent"] > 1
    assert set(choices) <= {"silent", "not looked", "no room"}
    assert 0 < num_heard <= sum(choices.values()) / 8  # eight or more are learnt from as one


class Hinting(Picking):
    """Says by `may_guess` that it has no guess in every second round."""

    num_glances = 0

    def may_guess(self, request: RequestView, budget: Budget) -> bool:  # noqa: ARG002
        self.num_glances += 1
        return self.num_glances % 2 == 0


def test_who_has_nothing_to_say_is_not_asked(plain: LLM) -> None:
    drafter = Hinting((1, 2, 3))
    _, choices = passes_heard(plain, drafter)
    assert drafter.num_glances > 10
    assert len(drafter.budgets) == drafter.num_glances // 2
    assert choices["silent"] == drafter.num_glances - len(drafter.budgets)


class Mute(Picking):
    """Says by `may_guess` that it never has a guess."""

    def may_guess(self, request: RequestView, budget: Budget) -> bool:  # noqa: ARG002
        return False


def test_nor_is_one_beside_whom_another_speaks(plain: LLM) -> None:
    mute, drafter = Mute((4, 5)), Picking((1, 2, 3))
    passes_heard(plain, drafter, mute=mute)
    assert drafter.budgets
    assert not mute.budgets


def test_rounds_that_were_weighed_are_timed(plain: LLM) -> None:
    num_heard, choices = passes_heard(plain, Picking((1, 2, 3)))
    weighed = sum(choices.values()) - choices.get("silent", 0) - choices.get("not looked", 0)
    num_settling = 12 - 3  # after the prompt one in four is learnt from
    assert num_heard >= weighed - choices.get("no room", 0) - num_settling > 0


def test_drafters_hear_what_a_guess_must_be_worth(plain: LLM) -> None:
    drafter = Picking((1, 2, 3))
    passes_heard(plain, drafter)
    assert drafter.budgets[0].least_chance == pytest.approx(0.5)  # a pass over n tokens costs 1 + n
    assert all(budget.least_chance > 0 for budget in drafter.budgets)


def test_a_step_tells_once_where_its_seconds_went(plain: LLM) -> None:
    """Uses a clock that advances by a second at every reading."""
    llm = plain.with_speculation({"method": "bigram", "adaptive": False})
    core, told = llm.engine.core, list[StepTimes]()
    assert core.speculation is not None

    class Listening(Speculation):
        def observe(self, times: StepTimes) -> None:
            told.append(times)

    speculation = Listening(core.speculation.drafters, None, Budget(3))
    seconds = itertools.count()
    llm.engine.core = replace(core, speculation=speculation, clock=lambda: float(next(seconds)))
    output = llm.generate("abcabcabc", PARAMS)[0].outputs[0]
    assert len(told) == llm.metrics()["passes"] == output.stats["target_passes"]
    assert {times.pass_seconds for times in told} == {1.0}
    guessing = [times for times in told if times.drafts]
    assert len(guessing) > 3
    for times in guessing:  # began, around the draft, around the pass, finished
        assert [seconds for *_, seconds in times.drafts] == [1.0]
        assert times.rest_seconds == 5 - 1 - 1
        assert times.num_tokens == 1 + times.num_guesses
    assert sum(times.num_guesses for times in told) == output.stats["draft_tokens"]


class Asked(Picking):
    """A drafter that does not pick: a guess takes a second of the clock, and is never right."""

    picks = False


def test_who_did_not_pay_sleeps_and_costs_a_glance(plain: LLM) -> None:
    drafter = Asked((1,))
    num_heard, choices = passes_heard(plain, drafter)
    weighed = choices.get("nothing pays", 0) + choices.get("probe: suffix to 1", 0)
    assert 0 < weighed <= sum(choices.values()) // 6
    assert choices["silent"] > 1
    assert num_heard < sum(choices.values())


class Reading(Asked):
    """Has a hundred rows to read before it guesses."""

    layers = ()

    def num_behind(self, _: RequestView) -> int:
        return 100

    def tapped(self, request: RequestView, start: int, rows: Mapping[int, FloatArray]) -> None: ...


@pytest.mark.parametrize(("per_row", "is_asked"), [(0.0, True), (1.0, False)])
def test_who_would_read_more_than_an_answer_is_worth_is_not_asked(
    plain: LLM, per_row: float, is_asked: bool
) -> None:
    llm = plain.with_speculation({"method": "suffix", "adaptive": False})
    cost = DraftCost(0.0, 0.0)
    cost.per_row = per_row
    drafter, costs = Reading((1,)), Costs(PassCost(((1, 1.0), (4, 1.0))), {"head": cost})
    core = llm.engine.core
    drafters = GuardedDrafters({"head": drafter}, core.model.config.vocab_size)
    speculation = Speculation(drafters, Controller(costs), Budget(3))
    llm.engine.core = replace(core, speculation=speculation)
    choices = llm.generate("abc", PARAMS)[0].outputs[0].stats["choices"]
    assert bool(drafter.budgets) == is_asked
    assert is_asked or set(choices) <= {"silent", "not looked", "no room"}
