"""One request alone: the fast path makes the choices that the path for batches would make."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from forerun.drafters import Budget
from forerun.drafters.base import RequestView
from forerun.engine import LLM
from forerun.speculation.choice import Reason
from forerun.speculation.controller import Controller
from forerun.speculation.costs import Costs, PassCost
from forerun.speculation.guarded_drafters import GuardedDrafters
from forerun.speculation.speculation import Speculation
from forerun.types import Proposal, SamplingParams, Verdict

CURVES = {
    "steep": ((1, 1.0), (2, 1.4), (9, 5.0)),
    "flat": ((1, 1.0), (9, 1.2)),
    "stepped": ((1, 1.0), (4, 1.05), (5, 2.0), (12, 2.1)),
}


def pick(rng: np.random.Generator) -> Proposal:
    num = int(rng.integers(1, 9))
    return Proposal.picked(rng.integers(0, 50, num).tolist(), rng.uniform(0.05, 1, num).tolist())


@pytest.mark.parametrize("curve", CURVES.values(), ids=CURVES)
def test_it_is_the_choice_of_the_allocator(curve: tuple[tuple[int, float], ...]) -> None:
    rng, reasons = np.random.default_rng(5), set()
    for num_drafters in (1, 2, 3) * 60:
        one, other = (Controller(Costs(PassCost(curve))) for _ in range(2))
        picks = [(f"drafter {idx}", pick(rng)) for idx in range(num_drafters)]
        ways = [w for name, made in picks for w in one.ways(0, name, Budget(8), made)]
        (expected,) = one.choose([ways])
        found = other.choose_alone(picks)
        assert found._replace(expected_seconds=0, expected_tokens=0, gain=0) == expected._replace(
            expected_seconds=0, expected_tokens=0, gain=0
        )
        for name in ("expected_seconds", "expected_tokens", "gain"):
            assert getattr(found, name) == pytest.approx(getattr(expected, name))
        reasons.add(found.reason)
    assert Reason.PAYS in reasons
    assert Reason.NOTHING_PAYS in reasons or curve is not CURVES["steep"]


def test_a_plain_pass_is_timed_once_in_a_while() -> None:
    controller = Controller(Costs(PassCost(CURVES["flat"])))
    controller._num_since_plain = 64
    choice = controller.choose_alone([("drafter", Proposal.picked([1, 2], [0.9, 0.9]))])
    assert (choice.reason, choice.drafter, choice.depth) == (Reason.BASELINE, None, 0)


class Sure:
    """Guesses with these chances of being right, or `fails`."""

    picks = says_chances = True
    num_requests = 0

    def __init__(self, chances: tuple[float, ...], *, fails: bool = False) -> None:
        self.chances, self.fails, self.num_asked = chances, fails, 0

    def begin(self, request: RequestView) -> None: ...

    def propose(self, _: Sequence[RequestView], budgets: Sequence[Budget]) -> list[Proposal]:
        self.num_asked += 1
        if self.fails:
            raise ValueError("nothing to be said")
        tokens = range(1, 1 + len(self.chances))
        return [Proposal.picked(tokens[: b.depth], self.chances[: b.depth]) for b in budgets]

    def commit(self, request: RequestView, verdict: Verdict) -> None: ...

    def end(self, request: RequestView) -> None: ...


def answered(
    plain: LLM, drafters: dict[str, Sure], *, is_simple: bool = True, tick: float = 1.0
) -> dict[str, Any]:
    """Return the stats of an answer, on the path for one request if `is_simple`, else on that for
    batches; every reading of the clock takes a `tick`."""
    llm = plain.with_speculation({"method": "suffix", "adaptive": False})
    core = llm.engine.core
    guarded = GuardedDrafters({**drafters}, core.model.config.vocab_size)
    costs = Costs(PassCost(((1, 1.0), (9, 1.2))))
    speculation = Speculation(guarded, Controller(costs), Budget(3))
    assert speculation._simple == set(drafters)
    if not is_simple:
        speculation._simple = frozenset()
    llm.engine.core = replace(
        core, speculation=speculation, clock=itertools.count(step=tick).__next__
    )
    params = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True)
    stats: dict[str, Any] = llm.generate("abc", params)[0].outputs[0].stats
    return stats


@pytest.mark.parametrize("fails", [False, True])
def test_an_answer_is_weighed_as_any_other(plain: LLM, fails: bool) -> None:
    """Both paths choose the same drafters and depths, at an answer's end and after failures too."""

    def drafters() -> dict[str, Sure]:
        return {"first": Sure((0.5, 0.3), fails=fails), "second": Sure((0.9, 0.8, 0.7))}

    one, other = (answered(plain, drafters(), is_simple=each) for each in (True, False))
    assert one["choices"] == other["choices"]
    assert one["drafter_failures"] == other["drafter_failures"] == int(fails)
    assert one["draft_tokens"] == other["draft_tokens"]
    assert (one["draft_tokens"] > 0) != fails


@pytest.mark.parametrize(
    ("chances", "is_sure"), [((0.9, 0.8, 0.9), True), ((0.9, 0.79, 0.9), False)]
)
def test_behind_one_that_is_sure_nobody_is_asked(
    plain: LLM, chances: tuple[float, ...], is_sure: bool
) -> None:
    first, second = Sure(chances), Sure((0.5,))
    stats = answered(plain, {"first": first, "second": second}, tick=1e-3)
    assert stats["draft_tokens"] > 0
    assert first.num_asked > 0
    assert (second.num_asked == 0) == is_sure
