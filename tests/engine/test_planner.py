"""The adaptive planner: what it tells the controller, and what it leaves alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from forerun.drafters import Budget
from forerun.drafters.base import RequestView
from forerun.engine import LLM
from forerun.engine.planner import Adaptive
from forerun.engine.speculation import Speculation
from forerun.planning.controller import Controller, Limits
from forerun.planning.cost_model import CostModel
from forerun.types import Proposal, SamplingParams, Verdict

PARAMS = SamplingParams(temperature=0, max_tokens=60, ignore_eos=True)


class Offering:
    """Always offers the same guesses."""

    offers = True
    num_requests = 0

    def __init__(self, tokens: tuple[int, ...]) -> None:
        self.tokens = tokens
        self.budgets: list[Budget] = []

    def begin(self, request: RequestView) -> None: ...

    def propose(self, _: Sequence[RequestView], budgets: Sequence[Budget]) -> list[Proposal]:
        self.budgets += budgets
        return [Proposal.chain(self.tokens[: budget.depth]) for budget in budgets]

    def commit(self, request: RequestView, verdict: Verdict) -> None: ...

    def end(self, request: RequestView) -> None: ...


def passes_heard(
    plain: LLM, drafter: Offering, monkeypatch: pytest.MonkeyPatch
) -> tuple[int, dict[str, int]]:
    """How many passes the controller hears of while one answer is written, and its choices."""
    llm = plain.with_speculation({"method": "suffix"})
    core = llm.engine.core
    assert core.speculation is not None
    drafters = replace(core.speculation.drafters, drafters={"suffix": drafter})
    controller = Controller(Limits(3), CostModel.calibrate(lambda num: 1.0 + num, (1, 2, 4), 1))
    planner = Adaptive(controller, drafters, Budget(3))
    llm.engine.core = replace(core, speculation=Speculation(drafters, planner))
    heard: list[int] = []
    observe_pass = Controller.observe_pass

    def hear(self: Controller, num_tokens: int, num_requests: int, seconds: float) -> None:
        heard.append(num_tokens)
        observe_pass(self, num_tokens, num_requests, seconds)

    monkeypatch.setattr(Controller, "observe_pass", hear)
    stats = llm.generate("abc", PARAMS)[0].outputs[0].stats
    return len(heard), stats["choices"]


def test_silent_rounds_take_no_time_of_the_controller(
    plain: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    num_heard, choices = passes_heard(plain, Offering(()), monkeypatch)
    assert choices["silent"] > 1
    assert set(choices) <= {"silent", "not looked", "no room"}
    assert 0 < num_heard < sum(choices.values()) / 3  # a plain pass is due now and then


def test_rounds_that_were_weighed_are_timed(plain: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    num_heard, choices = passes_heard(plain, Offering((1, 2, 3)), monkeypatch)
    weighed = sum(num for words, num in choices.items() if words not in ("silent", "not looked"))
    assert num_heard >= weighed - choices.get("no room", 0) > 0


def test_drafters_hear_what_a_guess_must_be_worth(
    plain: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    drafter = Offering((1, 2, 3))
    passes_heard(plain, drafter, monkeypatch)
    assert drafter.budgets[0].least_chance == pytest.approx(0.5)  # of n tokens a pass costs 1 + n
    assert all(budget.least_chance > 0 for budget in drafter.budgets)
