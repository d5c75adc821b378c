"""A head whose rounds begin early is asked in all of them, or rests; others do after long naps."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

import pytest

from forerun.drafters import Budget, Drafter, RequestView
from forerun.engine import LLM
from forerun.engine.api.outputs import CompletionOutput
from forerun.speculation.controller import Controller
from forerun.speculation.costs import Costs
from forerun.speculation.costs.draft_cost import DraftCost
from forerun.speculation.costs.pass_cost import PassCost
from forerun.speculation.guarded_drafters import GuardedDrafters
from forerun.speculation.speculation import Speculation
from forerun.speculation.step_times import StepTimes
from forerun.types import (
    FloatArray,
    Grammar,
    Proposal,
    SamplingParams,
    StructuredOutputsParams,
)
from tests.engine.known_answer import KnownAnswer, new_request

NUM_TOKENS, REST = 120, 64
PARAMS = SamplingParams(temperature=0, max_tokens=NUM_TOKENS, ignore_eos=True)


class Head(KnownAnswer):
    """Looks at hidden states, and guesses once it has seen some."""

    layers = (0,)

    def __init__(self, answer: Sequence[int]) -> None:
        super().__init__(answer)
        self.heard: list[int] = []  # positions from which on it was told of hidden states
        self.asked: list[int] = []  # tokens of the answer that were known
        self.others: list[int] = []

    def num_behind(self, _: RequestView) -> int:
        return 0

    def tapped(self, request: RequestView, start: int, rows: Mapping[int, FloatArray]) -> None:
        del request, rows
        self.heard.append(start)

    def propose(self, requests: Sequence[RequestView], budgets: Sequence[Budget]) -> list[Proposal]:
        (request,) = requests
        assert self.heard[-1] + 1 <= len(request.tokens) - 1, "hidden states are missing"
        self.asked.append(len(request.output))
        return super().propose(requests, budgets)


class Lookup(KnownAnswer):
    """Knows the answer from its tenth to its twentieth token."""

    picks = True

    def _guess(self, num_known: int, budget: Budget) -> Proposal:
        if not 10 <= num_known < 20:
            return Proposal.empty()
        return super()._guess(num_known, replace(budget, depth=min(budget.depth, 20 - num_known)))


class Bound:
    """A grammar that says something from the beginning on."""

    def binds(self, output: Sequence[int], more: Sequence[int] = ()) -> bool:  # noqa: ARG002
        return True


class KnownCosts(Costs):
    """A plain round takes a second, or other `plain` ones, and one with the head's guesses twice
    as long; no clock is believed."""

    def __init__(self, *, is_early: bool = True, plain: float = 1.0) -> None:
        super().__init__(PassCost(((1, plain), (16, plain))), {"head": DraftCost(plain, 0.0)})
        if is_early:
            self.expect_whole("head", 2 * plain, plain)

    def observe_draft(self, *_: object) -> None: ...

    def observe_round(self, times: StepTimes) -> None: ...

    def note_round(self, times: StepTimes) -> None: ...


def answered(
    plain: LLM,
    *,
    is_early: bool = True,
    seconds_each: float = 1.0,
    params: SamplingParams = PARAMS,
    **drafters: Drafter,
) -> CompletionOutput:
    """On a clock by which every look takes longer than a token."""
    llm = plain.with_speculation({"method": "suffix", "adaptive": False})
    core, seconds = llm.engine.core, itertools.count()
    guarded = GuardedDrafters(drafters, core.model.config.vocab_size)
    costs = KnownCosts(is_early=is_early, plain=seconds_each)
    speculation = Speculation(guarded, Controller(costs), Budget(4))
    llm.engine.core = replace(core, speculation=speculation, clock=lambda: float(next(seconds)))
    output = llm.generate("abc", params)[0].outputs[0]
    assert not any(speculation.in_use().values())
    return output


def plain_answer(plain: LLM) -> tuple[int, ...]:
    return tuple(plain.generate("abc", PARAMS)[0].outputs[0].token_ids)


def test_a_head_that_pays_is_asked_in_every_round(plain: LLM) -> None:
    answer = plain_answer(plain)
    head = Head(answer)
    output = answered(plain, head=head)
    assert tuple(output.token_ids) == answer
    assert head.asked[0] == 1
    gaps = {late - early for early, late in itertools.pairwise(head.asked)}
    assert gaps == {5}  # four guesses were accepted each time


def test_a_head_whose_guesses_fail_rests_and_hears_nothing(plain: LLM) -> None:
    answer = plain_answer(plain)
    head = Head([token ^ 1 for token in answer])
    output = answered(plain, head=head)
    assert tuple(output.token_ids) == answer
    gaps = [late - early for early, late in itertools.pairwise(head.heard)]
    assert gaps.count(1) + gaps.count(3) >= len(gaps) - 1  # a prompt of three
    (rest,) = (gap for gap in gaps if gap > 3)
    assert REST <= rest <= REST + 8  # looks are rare there
    tried = [num for num in head.asked if num < REST]
    assert tried == list(range(1, 1 + len(tried)))  # in a row, or never
    assert len(head.asked) < 24


@pytest.mark.parametrize(
    ("seconds_each", "is_early", "triggers", "is_asked"),
    [
        (1e-3, True, None, False),
        (1e-3, False, None, True),
        (1.0, True, None, True),
        (1e-3, True, ("nothing like it",), True),
    ],
)
def test_behind_masks_a_small_model_goes_without_a_head_whose_rounds_would_not_begin_early(
    plain: LLM,
    seconds_each: float,
    is_early: bool,
    triggers: tuple[str, ...] | None,
    is_asked: bool,
) -> None:
    fitting = StructuredOutputsParams(regex="[a-m]*", triggers=triggers)
    params = replace(PARAMS, structured_outputs=fitting)
    answer = tuple(plain.generate("abc", params)[0].outputs[0].token_ids)
    head = Head(answer)
    output = answered(plain, seconds_each=seconds_each, is_early=is_early, params=params, head=head)
    assert tuple(output.token_ids) == answer
    assert bool(head.asked) == is_asked
    assert bool(head.heard) == is_asked, "it is told of the prompt, or of nothing at all"
    assert bool(head.begun) == is_asked


@pytest.mark.parametrize(("plain_seconds", "layers"), [(1e-3, ()), (1.0, (0,))])
def test_a_prompt_hands_out_nothing_for_a_head_that_is_left_out(
    plain: LLM, plain_seconds: float, layers: tuple[int, ...]
) -> None:
    guarded = GuardedDrafters({"head": Head(())}, plain.engine.core.model.config.vocab_size)
    controller = Controller(KnownCosts(plain=plain_seconds))
    speculation = Speculation(guarded, controller, Budget(4))
    free, bound = (replace(new_request(plain.tokenizer, PARAMS), id=idx) for idx in range(2))
    bound.grammar = cast(Grammar, Bound())
    assert speculation.layers_for([bound]) == layers
    assert speculation.layers_for([bound, free]) == (0,)
    assert list(guarded.tapped_for(free)) == ["head"]
    assert list(guarded.tapped_for(bound)) == (["head"] if layers else [])


def test_a_guess_of_another_is_no_reason_to_rest(plain: LLM) -> None:
    answer = plain_answer(plain)
    head, lookup = Head(answer), Lookup(answer)
    output = answered(plain, head=head, lookup=lookup)
    assert tuple(output.token_ids) == answer
    assert "pays: lookup to 4" in output.stats["choices"]
    behind = [num for num in head.asked if num >= 20]
    assert behind[0] <= 25
    assert {late - early for early, late in itertools.pairwise(behind)} == {5}
    assert len(head.heard) == output.stats["target_passes"]


def test_a_head_that_naps_for_long_hears_nothing_either(plain: LLM) -> None:
    answer = plain_answer(plain)
    head = Head([token ^ 1 for token in answer])
    output = answered(plain, head=head, is_early=False)
    assert tuple(output.token_ids) == answer
    gaps = [late - early for early, late in itertools.pairwise(head.heard)]
    assert max(gaps) >= 32
    assert len(head.heard) < 0.75 * NUM_TOKENS
    assert len(head.asked) < 12
    good = Head(answer)
    output = answered(plain, head=good, is_early=False)
    assert tuple(output.token_ids) == answer
    assert len(good.heard) == output.stats["target_passes"]
