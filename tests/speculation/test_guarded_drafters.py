"""Promise 4 for drafters: one that throws or talks nonsense costs speculation, nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from forerun.drafters import Budget, RequestView
from forerun.engine import LLM
from forerun.engine.request.options import RequestOptions
from forerun.errors import InvalidProposal
from forerun.speculation.controller import Controller
from forerun.speculation.costs import Costs
from forerun.speculation.costs.pass_cost import PassCost
from forerun.speculation.guarded_drafters import GuardedDrafters, checked_proposal
from forerun.speculation.request import AS_STARTED, SpeculativeRequest
from forerun.speculation.speculation import Speculation
from forerun.types import ROOT, Grammar, Proposal, ProposalBuilder, SamplingParams, Verdict
from tests.engine.leaks import assert_nothing_is_held
from tests.soak.bad_drafters import nonsense

PARAMS = SamplingParams(temperature=0.8, seed=2, max_tokens=12, ignore_eos=True)


class Broken:
    """Fails in the way that `fails` names; else guesses token 1."""

    picks = False
    num_requests = 0

    def __init__(self, fails: str) -> None:
        self.fails = fails

    def begin(self, request: RequestView) -> None:  # noqa: ARG002
        if self.fails == "begin":
            raise RuntimeError("not today")

    def propose(self, requests: Sequence[RequestView], budgets: Sequence[Budget]) -> list[Proposal]:
        if self.fails == "propose" or (self.fails == "one" and any(r.id % 2 for r in requests)):
            raise RuntimeError("no idea")
        answers = {"ids": [10_000], "depth": [1] * (budgets[0].depth + 1)}
        found = [Proposal.chain(answers.get(self.fails, [1] * min(1, b.depth))) for b in budgets]
        return found[1:] if self.fails == "count" else found

    def commit(self, request: RequestView, verdict: Verdict) -> None:  # noqa: ARG002
        if self.fails == "commit":
            raise RuntimeError("lost count")

    def end(self, request: RequestView) -> None:  # noqa: ARG002
        if self.fails == "end":
            raise RuntimeError("cannot forget")


def with_drafter(plain: LLM, drafter: Any, controller: Controller | None = None) -> LLM:
    llm = plain.with_speculation({"method": "random", "adaptive": False})
    core = llm.engine.core
    drafters = GuardedDrafters({"broken": drafter}, core.model.config.vocab_size)
    llm.engine.core = replace(core, speculation=Speculation(drafters, controller, Budget(3)))
    return llm


def hopeful() -> Controller:
    """Return a controller by whose costs guesses pay."""
    return Controller(Costs(PassCost(((1, 1.0), (8, 1.1)))))


@pytest.mark.parametrize("fails", ["begin", "propose", "ids", "depth", "count", "commit", "end"])
def test_the_answer_is_the_same(plain: LLM, fails: str, caplog: pytest.LogCaptureFixture) -> None:
    llm = with_drafter(plain, Broken(fails))
    output = llm.generate("abc", PARAMS)[0].outputs[0]
    assert "goes on without speculation" in caplog.text
    assert output.token_ids == plain.generate("abc", PARAMS)[0].outputs[0].token_ids
    assert output.stats["drafter_failures"] == 1 or fails == "end"
    assert llm.metrics()["drafter_failures"] == 1
    assert llm.engine.core.cache.pool.num_free == llm.engine.core.cache.pool.num_pages


class BrokenHint(Broken):
    def may_guess(self, request: RequestView, budget: Budget) -> bool:  # noqa: ARG002
        raise RuntimeError("cannot tell")


def test_a_hint_may_fail_too(plain: LLM, caplog: pytest.LogCaptureFixture) -> None:
    llm = with_drafter(plain, BrokenHint(""), hopeful())
    output = llm.generate("abc", PARAMS)[0].outputs[0]
    assert "cannot tell" in caplog.text
    assert output.token_ids == plain.generate("abc", PARAMS)[0].outputs[0].token_ids
    assert output.stats["drafter_failures"] == 1
    assert_nothing_is_held(llm)


def test_others_go_on_speculating(plain: LLM, caplog: pytest.LogCaptureFixture) -> None:
    llm = with_drafter(plain, Broken("one"))
    prompts = ["abc", "b", "cab", "a"]
    results = llm.generate(prompts, PARAMS)
    assert "no idea" in caplog.text
    for prompt, result in zip(prompts, results, strict=True):
        assert result.outputs[0].token_ids == plain.generate(prompt, PARAMS)[0].outputs[0].token_ids
    guessed = [result.outputs[0].stats["draft_tokens"] > 0 for result in results]
    assert sorted(guessed) == [False, False, True, True]


PLACES = ["ways", "choose", "commit", "observe", "end"]


@pytest.mark.parametrize("place", PLACES)
def test_a_controller_may_fail_too(
    plain: LLM, place: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(*_: Any, **__: Any) -> Any:
        raise RuntimeError("lost the thread")

    monkeypatch.setattr(Controller, place, failing)
    llm = with_drafter(plain, Broken(""), hopeful())
    output = llm.generate("abc", PARAMS)[0].outputs[0]
    assert "lost the thread" in caplog.text
    assert output.token_ids == plain.generate("abc", PARAMS)[0].outputs[0].token_ids
    held = {name for name, num in llm.in_use().items() if num}
    assert held == ({"controller_entries"} if place == "end" else set())  # kept by its `end`


def test_the_first_failure_is_logged(plain: LLM, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged, not raised as a Python warning, which the test settings would make an error."""
    llm = with_drafter(plain, Broken("propose"))
    llm.generate(["abc", "b", "cab"], PARAMS)
    llm.generate("abc", PARAMS)
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("forerun", "WARNING")
    assert "only counted" in record.getMessage()
    assert llm.metrics()["drafter_failures"] == 4


def test_an_end_that_fails_leaves_no_request_behind(
    plain: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: Any) -> None:
        raise RuntimeError("out of order")

    llm = with_drafter(plain, Broken(""))
    monkeypatch.setattr(Speculation, "end", failing)
    with pytest.raises(RuntimeError, match="out of order"):
        llm.generate("abc", PARAMS)
    assert_nothing_is_held(llm)


def test_a_pick_that_throws_is_the_fault_of_one(
    plain: LLM, caplog: pytest.LogCaptureFixture
) -> None:
    """Picks are asked for all requests at once; one failure must not lose the others' picks."""
    drafter = Broken("one")
    drafter.picks = True
    llm = with_drafter(plain, drafter, hopeful())
    results = llm.generate(["abc", "b", "cab", "a"], PARAMS)
    assert "no idea" in caplog.text
    failures = [result.outputs[0].stats["drafter_failures"] for result in results]
    assert sorted(failures) == [0, 0, 1, 1]


@pytest.mark.parametrize("idx", range(len(nonsense(Budget(3, 2), 32))))
def test_nonsense_is_refused(idx: int) -> None:
    answer = nonsense(Budget(3, 2), 32)[idx]
    with pytest.raises((InvalidProposal, TypeError)):
        checked_proposal(answer(), Budget(3, 2), num_trees=1, vocab_size=32)


def test_a_pick_that_was_drawn_is_refused(plain: LLM, caplog: pytest.LogCaptureFixture) -> None:
    class Drawn(Broken):
        picks = True

        def propose(self, requests: Sequence[RequestView], _: Any) -> list[Proposal]:
            return [Proposal.chain([1], [np.full(32, 1 / 32)]) for _ in requests]

    drafters = GuardedDrafters({"drawn": Drawn("")}, vocab_size=32)
    (request,) = plain.input_processor.requests("abc", PARAMS, RequestOptions())
    assert drafters.propose("drawn", [request], [Budget(2)]) == [Proposal.empty()]
    assert "must not be drawn" in caplog.text


class OnlyEven:
    """A grammar that allows even tokens."""

    def num_fitting(self, _: Sequence[int], tokens: Sequence[int]) -> int:
        return next((n for n, token in enumerate(tokens) if token % 2), len(tokens))


def test_picked_guesses_that_a_grammar_rules_out_are_cut(plain: LLM) -> None:
    builder = ProposalBuilder()
    first = builder.add(ROOT, 2, chance=0.5)
    builder.add(builder.add(first, 3, chance=0.5), 4, chance=0.5)
    builder.add(builder.add(ROOT, 5, chance=0.5), 6, chance=0.5)
    builder.add(builder.add(ROOT, 8, chance=0.5), 10, chance=0.25)
    answers = [Proposal.chain([2, 4, 5, 6]), builder.build()]

    class Picking(Broken):
        picks = True

        def propose(self, requests: Sequence[RequestView], _: Any) -> list[Proposal]:
            return [answers[0] for _ in requests]

    drafters = GuardedDrafters({"picking": Picking("")}, vocab_size=32)
    (request,) = plain.input_processor.requests("abc", PARAMS, RequestOptions())
    request.grammar = cast(Grammar, OnlyEven())
    (found,) = drafters.propose("picking", [request], [Budget(4, 3)])
    assert found.tokens == (2, 4)
    answers.pop(0)
    (found,) = drafters.propose("picking", [request], [Budget(4, 3)])
    assert (found.tokens, found.tree.parents) == ((2, 8, 10), (-1, -1, 1))
    assert found.draws[2].chance == 0.25


def test_who_is_put_aside_changes_nothing_for_the_others() -> None:
    drafters = GuardedDrafters({name: Broken("never") for name in "xyz"}, 100)
    resting, new = (
        cast(SpeculativeRequest, SimpleNamespace(id=idx, speculation=AS_STARTED, tokens=[1]))
        for idx in range(2)
    )
    drafters.leave_out("y", resting)
    drafters.put_aside("x", "it guesses too little")
    assert (*drafters.names_for(resting),) == ("z",)
    assert (*drafters.names_for(new),) == ("y", "z")
    drafters.bring_back("y", resting)
    assert (*drafters.names_for(resting),) == ("z", "y")
    drafters.bring_back("x", resting)
    assert "x" not in drafters.names_for(resting)
