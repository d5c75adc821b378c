"""A head whose rounds begin early is asked in every round, or rests for many rounds."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

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
    Acceptance,
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
    """Reads hidden states, and guesses only after it was told of some."""

    layers = (0,)

    def __init__(self, answer: Sequence[int]) -> None:
        super().__init__(answer)
        self.heard: list[int] = []  # first position of each call of `tapped`
        self.num_heard = 0  # positions up to the end of the last call
        self.asked: list[int] = []  # length of the output at each guess
        self.others: list[int] = []

    def num_behind(self, _: RequestView) -> int:
        return 0

    def tapped(self, request: RequestView, start: int, rows: Mapping[int, FloatArray]) -> None:
        del request
        self.heard.append(start)
        self.num_heard = start + len(rows[0])

    def propose(self, requests: Sequence[RequestView], budgets: Sequence[Budget]) -> list[Proposal]:
        (request,) = requests
        assert self.num_heard == len(request.tokens) - 1, "hidden states of all but the last"
        self.asked.append(len(request.output))
        return super().propose(requests, budgets)


class Lookup(KnownAnswer):
    """Guesses only the tenth to the twentieth token of the answer."""

    picks = True

    def _guess(self, num_known: int, budget: Budget) -> Proposal:
        if not 10 <= num_known < 20:
            return Proposal.empty()
        return super()._guess(num_known, replace(budget, depth=min(budget.depth, 20 - num_known)))


class Bound:
    """A grammar that binds from the first token on."""

    def binds(self, output: Sequence[int], more: Sequence[int] = ()) -> bool:  # noqa: ARG002
        return True

    def may_loosen(self, output: Sequence[int]) -> bool:  # noqa: ARG002
        return False


class KnownCosts(Costs):
    """Fixed costs: `plain` seconds for a plain round, twice that with the head's guesses; nothing
    is learnt from times."""

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
    """Answer with these drafters, on a clock by which every look takes longer than a token."""
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
    assert gaps.count(1) + gaps.count(3) >= len(gaps) - 1  # 3: the prompt
    (rest,) = (gap for gap in gaps if gap > 3)
    assert REST <= rest <= REST + 8  # looks are rare by then
    tried = [num for num in head.asked if num < REST]
    assert tried == list(range(1, 1 + len(tried)))  # round after round, until it rests
    assert len(head.asked) < 24


APART: tuple[dict[str, Any], ...] = (
    {"structured_outputs": StructuredOutputsParams(regex="[a-m]*")},
    {"repetition_penalty": 1.1},
    {"logit_bias": {3: 1.0}},
    {"allowed_token_ids": tuple(range(20))},
    {"temperature": 0.7, "top_p": 0.9, "seed": 1},
    {"logprobs": 1},
    {"acceptance": "rejection", "temperature": 0.7, "seed": 1},
)
WAITING = StructuredOutputsParams(regex="[a-m]*", triggers=("nothing like it",))
TOGETHER: tuple[dict[str, Any], ...] = (
    {"structured_outputs": WAITING},
    {"temperature": 0.7, "seed": 1},
    {"top_p": 0.9},  # keeps the best token alone
)


@pytest.mark.parametrize(
    ("options", "seconds_each", "is_early", "is_asked"),
    [
        *((options, 1e-3, True, False) for options in APART),
        *((options, 1e-3, True, True) for options in TOGETHER),
        *((options, 1e-3, False, True) for options in APART[:2]),
        *((options, 1.0, True, True) for options in APART[:2]),
    ],
    ids=str,
)
def test_a_small_model_goes_without_a_head_whose_guesses_would_be_drawn_apart(
    plain: LLM,
    options: dict[str, Any],
    seconds_each: float,
    is_early: bool,
    is_asked: bool,
) -> None:
    params = replace(PARAMS, **options)
    answer = tuple(plain.generate("abc", params)[0].outputs[0].token_ids)
    head = Head(answer)
    output = answered(plain, seconds_each=seconds_each, is_early=is_early, params=params, head=head)
    if params.acceptance is Acceptance.COUPLED:
        assert tuple(output.token_ids) == answer
    assert bool(head.asked) == is_asked
    assert bool(head.heard) == is_asked, "it is told of the prompt, or of nothing at all"
    assert bool(head.begun) == is_asked


def test_a_head_stays_where_only_the_beginning_of_reasoning_is_bound(plain: LLM) -> None:
    answer = plain_answer(plain)
    opens = plain.tokenizer.decode(answer[:3])
    grammar = StructuredOutputsParams(regex="[^a-z]", reasoning=(opens, "it never ends"))
    params = PARAMS.with_(structured_outputs=grammar)
    head = Head(answer)
    output = answered(plain, seconds_each=1e-3, params=params, head=head)
    assert tuple(output.token_ids) == answer
    assert len(head.asked) > NUM_TOKENS / 8


@pytest.mark.parametrize("min_tokens", [0, 2, 9])
def test_rounds_before_the_end_may_come_are_not_taken_for_others(
    plain: LLM, min_tokens: int
) -> None:
    """EOS is masked before `min_tokens`, so rounds do not begin early; the head stays for later."""
    params = replace(PARAMS, min_tokens=min_tokens, ignore_eos=False)
    guarded = GuardedDrafters({"head": Head(())}, plain.engine.core.model.config.vocab_size)
    controller = Controller(KnownCosts())
    speculation = Speculation(guarded, controller, Budget(4))
    for num in (0, 1, 2, 5, 9):
        request = new_request(plain.tokenizer, params, output=(1,) * num)
        speculation.choose([request], 0, StepTimes(lambda: 0.0))
        assert controller.costs.is_free is (num >= min_tokens)
        assert list(guarded.tapped_for(request)) == ["head"]


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
