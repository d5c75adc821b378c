"""One step: what is asked for, what is told, and what stays."""

from __future__ import annotations

from typing import Any

import pytest

from forerun.drafters import Budget
from forerun.engine import LLM
from forerun.engine.planner import budget_for, room
from forerun.types import SamplingParams
from tests.engine.known_answer import knowing, new_request

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
    """A round emits one token more than it accepts."""
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
    assert room(request) == num_left - 1
    assert budget_for(request, Budget(4)).depth == min(4, num_left - 1)
