"""One step: what it asks of drafters and kernels, what it tells them, and what it keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forerun.drafters import Budget, RequestView
from forerun.engine import LLM
from forerun.engine.request.request import Request
from forerun.engine.scheduling.limits import SchedulerLimits
from forerun.engine.scheduling.scheduler import Scheduler
from forerun.engine.scheduling.target_pool import TargetPool
from forerun.errors import InvalidDistribution
from forerun.kernels import Plan, ReferenceKernels, Scores
from forerun.models.llama import TapRows
from forerun.speculation.choice import Choice
from forerun.speculation.guarded_drafters import GuardedDrafters
from forerun.speculation.request import SpeculativeRequest
from forerun.speculation.speculation import Speculation, budget_for
from forerun.speculation.step_times import StepTimes
from forerun.types import (
    ROOT,
    Acceptance,
    FloatArray,
    Proposal,
    ProposalBuilder,
    SamplingParams,
    Verdict,
)
from tests.engine.known_answer import KnownAnswer, knowing, new_request
from tests.engine.test_heads import states

PARAMS = SamplingParams(temperature=0.9, seed=5, max_tokens=20, ignore_eos=True)


def answer_of(plain: LLM, params: SamplingParams = PARAMS) -> tuple[int, ...]:
    return tuple(plain.generate("abc", params)[0].outputs[0].token_ids)


ENDS: dict[str, Any] = {
    "length": lambda _: {},
    "stop token": lambda whole: {"stop_token_ids": (whole[9],)},
    "stop string": lambda whole: {"stop": (chr(ord("a") + whole[7]),), "min_tokens": 5},
}


@pytest.mark.parametrize("end", ENDS)
def test_drafters_hear_what_was_emitted_and_nothing_that_was_cut(plain: LLM, end: str) -> None:
    whole = answer_of(plain)
    params = PARAMS.with_(**ENDS[end](whole))
    llm, drafter = knowing(plain, whole)
    output = llm.generate("abc", params)[0].outputs[0]
    assert tuple(output.token_ids) == answer_of(plain, params)
    told = sum((verdict.tokens for verdict in drafter.told), ())
    assert told == tuple(output.token_ids)
    heard: tuple[int, ...] = ()
    for verdict, at_that_time in zip(drafter.told, drafter.outputs, strict=True):
        heard += verdict.tokens
        assert at_that_time == heard, "the request is up to date when drafters are told"
    assert sum(len(verdict.path) for verdict in drafter.told) == output.stats["accepted_tokens"]


@pytest.mark.parametrize("max_tokens", range(1, 14))
def test_no_guess_is_made_that_the_answer_has_no_room_for(plain: LLM, max_tokens: int) -> None:
    """A round emits one token more than it accepts, so the last token needs no guess."""
    whole = answer_of(plain)[:max_tokens]
    llm, drafter = knowing(plain, whole)
    output = llm.generate("abc", PARAMS.with_(max_tokens=max_tokens))[0].outputs[0]
    assert tuple(output.token_ids) == whole
    for budget, num_left in zip(drafter.budgets, drafter.num_left, strict=True):
        assert budget.depth == min(4, num_left - 1)
    assert output.stats["draft_tokens"] == output.stats["accepted_tokens"]


@pytest.mark.parametrize("num_left", [1, 2, 3, 9])
def test_room(plain: LLM, num_left: int) -> None:
    params = SamplingParams(max_tokens=2 + num_left)
    request = new_request(plain.tokenizer, params, output=(1, 2))
    assert budget_for(request, Budget(4)).depth == min(4, num_left - 1)
    steady = budget_for(request, Budget(4), is_steady=True)  # rounds are alike until the end
    assert steady.depth == (4 if num_left > 1 else 0)


# --------------------------------------------------------- what speculation and the counts hear


class Heard(Speculation):
    """The shipped `Speculation`, which records what it is asked and told."""

    def __init__(self, drafters: GuardedDrafters, ceiling: Budget) -> None:
        super().__init__(drafters, None, ceiling)
        self.asked: list[tuple[int, int]] = []  # requests that may guess, prompt tokens of others
        self.times: list[StepTimes] = []
        self.rounds: list[tuple[Choice | None, Proposal, Verdict]] = []

    def choose(
        self, requests: Sequence[SpeculativeRequest], num_prompt_tokens: int, times: StepTimes
    ) -> dict[int, Choice]:
        if requests:
            self.asked.append((len(requests), num_prompt_tokens))
        return super().choose(requests, num_prompt_tokens, times)

    def observe(self, times: StepTimes) -> None:
        self.times.append(times)

    def commit(
        self,
        request: SpeculativeRequest,
        choice: Choice | None,
        proposal: Proposal,
        emitted: Verdict,
    ) -> None:
        assert request.output[-len(emitted.tokens) :] == list(emitted.tokens)
        self.rounds.append((choice, proposal, emitted))
        super().commit(request, choice, proposal, emitted)


def chunked(llm: LLM, speculation: Speculation | None = None) -> LLM:
    """Limit this engine to 16 tokens in a pass."""
    core = llm.engine.core
    limits = SchedulerLimits(core.max_len, 4, max_num_batched_tokens=16)
    llm.engine.core = replace(
        core,
        scheduler=Scheduler(limits, TargetPool(core.cache, core.requests)),
        speculation=speculation or core.speculation,
    )
    return llm


def test_speculation_hears_of_every_pass(plain: LLM) -> None:
    """A prompt of 30 tokens is read 16 at a time while another answer is written."""
    first = PARAMS.with_(max_tokens=6)
    answer = answer_of(plain, first)
    llm, drafter = knowing(plain, answer, depth=2)
    core = llm.engine.core
    assert core.speculation is not None
    heard = Heard(core.speculation.drafters, Budget(2))
    chunked(llm, heard)
    second = SamplingParams(temperature=0, max_tokens=1, ignore_eos=True)
    prompts: list[str | Sequence[int]] = ["abc", [5] * 30]
    results = llm.generate(prompts, [first, second])
    assert tuple(results[0].outputs[0].token_ids) == answer
    alone = plain.generate([5] * 30, second)[0].outputs[0].token_ids
    assert results[1].outputs[0].token_ids == alone
    # Prompts of 3 + 13, then 1 + 15 with no place for guesses, then 1 + 2 with two.
    counts = [(t.num_tokens, t.num_requests, t.num_guesses) for t in heard.times]
    assert counts == [(16, 2, 0), (16, 2, 0), (5, 2, 2), (1, 1, 0)]
    assert heard.asked == [(1, 17), (1, 2), (1, 0)]
    assert all(t.pass_seconds > 0 and t.rest_seconds > 0 for t in heard.times)
    (guessed,) = [told for told in heard.rounds if len(told[1])]
    assert guessed[0] is not None
    assert (guessed[0].drafter, guessed[1].tokens) == ("known", answer[2:4])
    assert guessed[2].tokens == answer[2:5]
    assert [verdict.path for verdict in drafter.told if verdict.path] == [(0, 1)]
    assert llm.metrics()["pass_tokens"] == 16 + 16 + 5 + 1
    assert llm.metrics()["passes"] == 4


def test_one_whose_prompt_is_half_read_holds_up_nobody_behind_it(plain: LLM) -> None:
    llm = chunked(plain.with_speculation(None))
    stream = llm.stream("abc", PARAMS)
    first = next(stream)
    llm.generate([5] * 50, SamplingParams(max_tokens=1), priority=-1)  # first in a pass
    events = [first, *stream]
    assert sum((event.tokens for event in events), ()) == answer_of(plain)


def test_a_round_says_what_was_asked_guessed_and_kept(plain: LLM) -> None:
    whole = answer_of(plain)
    llm, drafter = knowing(plain, whole)
    events = list(llm.stream("abc", PARAMS.with_(stop_token_ids=(whole[3],))))
    kept = whole[: whole.index(whole[3]) + 1]
    assert sum((event.tokens for event in events), ()) == kept
    emitted: tuple[int, ...] = ()
    for event in events:
        done = event.round
        assert done.verdict.tokens == event.tokens
        assert done.cut is None  # a cut has the whole text, one copy of which is enough
        num_guesses = done.choice.num_guesses if done.choice else 0
        assert num_guesses in (0, 4)
        assert done.proposal.tokens == whole[len(emitted) :][:num_guesses]
        emitted += event.tokens
    assert drafter.begun
    assert drafter.begun == drafter.ended


def begun(llm: LLM, prompt: Sequence[int]) -> Request:
    """Add a request to the engine and return it."""
    params = SamplingParams(temperature=0, max_tokens=5)
    table = llm.engine.core.cache.new_table()
    request = new_request(llm.tokenizer, params, prompt, table=table)
    llm.engine.add([request])
    return request


def test_a_prompt_that_is_half_read_is_kept_for_the_next(plain: LLM) -> None:
    llm = chunked(plain.with_speculation(None))
    prompt = list(range(20)) * 3
    request = begun(llm, prompt)
    stepped = llm.engine.step()
    assert (stepped.rounds, stepped.ended) == ([], []), "nothing was emitted"
    assert request.num_rows == 16
    llm.engine.abort(request)
    assert llm.generate(prompt, PARAMS)[0].num_cached_tokens == 16


def test_logits_that_cannot_be_judged_end_their_request_with_the_reason(
    plain: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm = plain.with_speculation(None)
    request = begun(llm, [1, 2, 3])
    rows = np.full((1, plain.model.config.vocab_size), np.nan, np.float32)
    monkeypatch.setattr(type(llm.model), "draw", lambda *_: Scores(rows))
    stepped = llm.engine.step()
    assert (stepped.rounds, stepped.ended) == ([], [request])
    assert request.error is not None
    assert isinstance(request.error.__cause__, InvalidDistribution)
    assert llm.engine.is_idle


def test_a_pass_that_fails_ends_its_request_with_the_reason(
    plain: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm = plain.with_speculation(None)
    request = begun(llm, [1, 2, 3])
    broken = RuntimeError("a broken pass")

    def fail(*_: object) -> None:
        raise broken

    monkeypatch.setattr(type(llm.model), "draw", fail)
    stepped = llm.engine.step()
    assert (stepped.rounds, stepped.ended) == ([], [request])
    assert request.error is not None
    assert request.error.__cause__ is broken
    assert llm.engine.is_idle
    assert llm.metrics()["requests"] == {"error": 1}


def test_a_stream_says_of_every_letter_how_it_came_about(plain: LLM) -> None:
    params = PARAMS.with_(allowed_token_ids=tuple(range(26)))
    llm, _ = knowing(plain, answer_of(plain, params))
    events = list(llm.stream("abc", params))
    output = events[-1].output
    assert output is not None
    pieces = [piece for event in events for piece in event.pieces]
    assert pieces == list(zip(output.text, output.origins, strict=True))
    assert len(set(output.origins)) > 1


def test_the_laws_of_drawn_guesses_are_gone_once_they_are_judged(plain: LLM) -> None:
    """Each q is as long as the vocabulary; a caller who keeps rounds would keep all of them."""
    llm = plain.with_speculation({"method": "random", "adaptive": False})
    params = PARAMS.with_(acceptance=Acceptance.REJECTION)
    draws = [d for event in llm.stream("abc", params) for d in event.round.proposal.draws]
    assert draws
    assert all(draw.probs_q is None for draw in draws)


# --------------------------------------------------------------------- where the next pass writes


class EarlyKernels(ReferenceKernels):
    """Kernels that could begin the next pass early, and record where it would write."""

    def __init__(self, *, plain: bool, rounds: bool) -> None:
        super().__init__()
        self.begins_plain, self.begins_rounds = plain, rounds
        self.plans: list[Plan] = []

    def begin(self, plan: Plan, *args: Any, **kwargs: Any) -> Any:
        self.plans.append(plan)
        return super().begin(plan, *args, **kwargs)

    def promised(self) -> list[list[int] | None]:
        """Return the slots promised after each pass of the only request; [] after its last pass."""
        found = list[list[int] | None]()
        for plan in self.plans:
            slots = plan.next_slots and plan.next_slots[0]
            found.append(None if plan.next_slots is None else [] if slots is None else [*slots])
        return found


def early(path: Path, *, plain: bool, rounds: bool) -> tuple[LLM, EarlyKernels]:
    kernels = EarlyKernels(plain=plain, rounds=rounds)
    llm = LLM(path, speculative_config=None, kernels=kernels)
    kernels.plans.clear()
    return llm, kernels


def test_a_plain_pass_knows_where_the_next_one_writes(tiny_path: Path) -> None:
    """Slots are promised except inside a prompt, whose next tokens are known, and after the last
    token, which nothing follows."""
    llm, kernels = early(tiny_path, plain=True, rounds=False)
    chunked(llm).generate([*range(20)], PARAMS.with_(max_tokens=15))
    assert [len(plan) for plan in kernels.plans] == [16, 4, *[1] * 14]
    inside, *promised, end = kernels.promised()
    assert (inside, end) == (None, [])
    for slots, plan in zip(promised, kernels.plans[2:], strict=True):
        assert slots is not None
        assert slots[:1] == plan.rows[0].write_slots.tolist()


def test_a_pass_with_guesses_knows_where_one_like_it_writes(tiny_path: Path) -> None:
    llm, kernels = early(tiny_path, plain=False, rounds=True)
    guessing, _ = knowing(llm, answer_of(llm))
    kernels.plans.clear()
    guessing.generate("abc", PARAMS)
    assert [len(plan) for plan in kernels.plans] == [3, 5, 5, 5, 4]
    without, *promised, last = kernels.promised()
    assert without is None, "a plain pass is not begun early here"
    for slots, plan in zip(promised, kernels.plans[2:], strict=True):
        assert slots is not None
        assert len(slots) >= 5
        assert slots[: len(plan)] == plan.rows[0].write_slots.tolist()
    assert last, "as far as one knows before it is judged, it may go on"


def test_what_was_done_of_a_pass_before_it_was_asked_for_counts_as_its_time(
    tiny_path: Path,
) -> None:
    llm, kernels = early(tiny_path, plain=True, rounds=False)
    guessing, drafter = knowing(llm, answer_of(llm))
    heard = Heard(GuardedDrafters({"known": drafter}, llm.model.config.vocab_size), Budget(4))
    kernels.head_start = 1000.0
    chunked(guessing, heard).generate("abc", PARAMS)
    assert heard.times
    assert all(t.head_start == 1000 and 1000 < t.pass_seconds < 1900 for t in heard.times)


def test_where_nothing_is_begun_early_no_slots_are_held_for_it(tiny_path: Path) -> None:
    llm, kernels = early(tiny_path, plain=False, rounds=False)
    guessing, _ = knowing(llm, answer_of(llm))
    guessing.generate("abc", PARAMS)
    assert len(kernels.plans) == 20 + 5
    assert kernels.promised() == [None] * 25


# -------------------------------------------------------------------------------- hidden states


class Listening(KnownAnswer):
    """Guesses in the given shape, and records the hidden states that it is told of."""

    layers = (0, 2)

    def __init__(self, answer: Sequence[int], shape: str) -> None:
        super().__init__(answer)
        self.shape = shape
        self.heard: list[tuple[int, int, dict[int, FloatArray]]] = []

    def num_behind(self, request: RequestView) -> int:  # noqa: ARG002
        return 0

    def tapped(self, request: RequestView, start: int, rows: Mapping[int, FloatArray]) -> None:  # noqa: ARG002
        assert isinstance(rows, TapRows)
        self.heard.append((start, rows.num_rows, {k: np.array(rows[k]) for k in rows}))

    def _guess(self, num_known: int, budget: Budget) -> Proposal:
        right = self.answer[num_known:]
        builder, parent = ProposalBuilder(), ROOT
        for depth in range(min(budget.depth, len(right)) if self.shape != "nothing" else 0):
            wrong = (right[depth] + 1) % 26
            if self.shape == "tree":  # the right one is the second of two
                builder.add(parent, wrong)
            is_right = depth < 2 or self.shape != "chain, half right"
            parent = builder.add(parent, right[depth] if is_right else wrong)
        return builder.build()


@pytest.mark.parametrize("shape", ["nothing", "chain", "chain, half right", "tree"])
def test_drafters_get_the_hidden_states_of_the_rows_that_stay(plain: LLM, shape: str) -> None:
    prompt = [idx % 26 for idx in range(20)]
    answer = plain.generate(prompt, PARAMS)[0].outputs[0].token_ids
    llm, drafter = plain.with_speculation(None), Listening(answer, shape)
    drafters = GuardedDrafters({"listening": drafter}, plain.model.config.vocab_size)
    chunked(llm, Speculation(drafters, None, Budget(4, 2)))
    output = llm.generate(prompt, PARAMS)[0].outputs[0]
    assert output.token_ids == answer
    assert output.stats["drafter_failures"] == 0
    assert (output.stats["accepted_tokens"] > 5) is (shape != "nothing")
    text = (*prompt, *answer[:-1])  # the last token is emitted but never run
    expected, end = states(plain.model, text, drafter.layers).rows, 0
    for start, num_rows, rows in drafter.heard:
        assert start == end
        end += num_rows
        for layer in drafter.layers:
            assert rows[layer].tobytes() == expected[layer][start:end].tobytes()
    assert end == len(text)
