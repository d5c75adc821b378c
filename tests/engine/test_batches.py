"""Concurrent requests: they share what one of them has computed, and their streams interleave."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from forerun.drafters import DraftModel
from forerun.engine import LLM, step
from forerun.engine.judge import judge
from forerun.engine.request.options import RequestOptions
from forerun.engine.request.request import Request
from forerun.errors import RequestFailed
from forerun.speculation.choice import Choice, Reason
from forerun.speculation.controller import Controller
from forerun.speculation.looks import Looks
from forerun.types import SamplingParams
from tests.engine.leaks import assert_nothing_is_held


def test_a_known_prefix_is_not_computed_again(plain: LLM) -> None:
    llm = plain.with_speculation(None)
    prompt = [idx % 30 for idx in range(200)]
    params = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True)
    first = llm.generate(prompt, params)[0].outputs[0].token_ids
    num_computed: list[int] = []
    draw = type(llm.model).draw

    def counting(model: Any, plan: Any, *rest: Any) -> Any:
        num_computed.append(len(plan))
        return draw(model, plan, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(llm.model), "draw", counting)
        again = llm.generate(prompt, params)[0].outputs[0].token_ids
    assert again == first
    assert num_computed[0] < 32


def test_a_stream_runs_while_others_come_and_go(plain: LLM) -> None:
    llm = plain.with_speculation({"method": "bigram"})
    params = SamplingParams(temperature=0.8, seed=1, max_tokens=20, ignore_eos=True)
    expected = plain.generate("abc", params)[0].outputs[0].text
    stream = llm.stream("abc", params)
    text = next(stream).text
    other = llm.stream("cab", params)
    next(other)
    other.close()
    llm.generate("bca", params)
    text += "".join(event.text for event in stream)
    assert text == expected


def test_one_that_fails_does_not_end_its_batch(plain: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    params = SamplingParams(temperature=0.8, seed=1, max_tokens=20, ignore_eos=True)
    alone = [plain.generate(prompt, params)[0].outputs[0].text for prompt in ("abc", "cab")]
    llm = plain.with_speculation(None)
    prompts: list[Any] = ["abc", [25, 25, 25], "cab"]

    def failing(request: Request, *rest: Any) -> Any:
        if request.prompt == (25, 25, 25) and len(request.output) > 5:
            raise RuntimeError("no idea")
        return judge(request, *rest)

    monkeypatch.setattr(step, "judge", failing)
    with pytest.raises(RequestFailed, match=r"1 of 3 prompts failed.*no idea") as caught:
        llm.generate(prompts, params)
    first, failed, last = caught.value.outputs
    assert [first.outputs[0].text, last.outputs[0].text] == alone
    assert failed is None
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert llm.metrics()["requests"] == {"length": 2, "error": 1}
    with pytest.raises(RequestFailed, match="the request failed"):
        list(llm.stream([25, 25, 25], params))
    assert_nothing_is_held(llm)


@pytest.mark.parametrize("adaptive", [True, False])
def test_a_small_draft_cache_costs_guesses_and_nothing_else(
    plain: LLM, tiny_path: Path, tiny_draft_path: Path, adaptive: bool
) -> None:
    """Eight requests share a long prefix: the target's 26 pages hold them all, the draft model's
    only two of them. All run at once, and those without draft rows still copy from their text."""
    config = {"method": "hybrid", "methods": ["suffix", "draft_model"], "adaptive": adaptive}
    llm = LLM(
        tiny_path,
        speculative_config=config | {"model": str(tiny_draft_path), "num_speculative_tokens": 4},
        max_model_len=200,
        kv_cache_memory=26 * 16 * plain.model.row_bytes // 3 * (3 + 1),  # layers: target, draft
        kernels=plain.model.kernels,
    )
    prefix = [idx % 30 for idx in range(150)]
    params = SamplingParams(temperature=0.8, seed=4, max_tokens=20, ignore_eos=True)
    llm.generate(prefix, params.with_(max_tokens=1))
    prompts = [[*prefix, idx] for idx in range(8)]
    requests = [llm.input_processor.requests(p, params, RequestOptions())[0] for p in prompts]
    llm.engine.add(requests)
    llm.engine.step()
    assert len(llm.engine.core.scheduler.running) == 8
    while not llm.engine.is_idle:
        llm.engine.step()
    for prompt, request in zip(prompts, requests, strict=True):
        alone = plain.generate(prompt, params)[0].outputs[0].token_ids
        assert tuple(request.output) == alone
        assert adaptive or request.stats.draft_tokens > 0
    assert_nothing_is_held(llm)


def test_a_draft_model_that_still_reads_is_not_taken_for_silent(
    plain: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seven prompts are more than the draft model reads in one step; until it has read them, its
    empty proposals do not count as silence."""
    llm = plain.with_speculation({"method": "own_layers", "num_layers": 2})
    speculation = llm.engine.core.speculation
    assert speculation is not None
    num_waiting = 0
    model = speculation.drafters.drafters["own_layers"]
    assert isinstance(model, DraftModel)
    choice = Choice(Reason.PAYS, "own_layers", 2)

    def choose(_: Controller, ways: list[Any], **__: Any) -> list[Choice]:
        nonlocal num_waiting
        num_waiting += sum(map(model.is_waiting, llm.engine.core.requests.values()))
        return [choice for _ in ways]

    monkeypatch.setattr(Looks, "is_due", lambda *_: True)
    monkeypatch.setattr(Controller, "choose", choose)
    prompts = [[(idx + n) % 30 for n in range(200)] for idx in range(7)]
    llm.generate(prompts, SamplingParams(temperature=0, max_tokens=20, ignore_eos=True))
    assert num_waiting > 0
    assert speculation.controller is not None
    assert speculation.controller.acceptance(-1, "own_layers").speaking.value == 1
