"""Requests beside each other: what one computed serves the next, and streams interleave."""

from __future__ import annotations

from typing import Any

import pytest

from forerun.engine import LLM
from forerun.types import SamplingParams


def test_a_known_prefix_is_not_computed_again(plain: LLM) -> None:
    llm = plain.with_speculation(None)
    prompt = [idx % 30 for idx in range(200)]
    params = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True)
    first = llm.generate(prompt, params)[0].outputs[0].token_ids
    num_computed: list[int] = []
    forward = type(llm.model).forward

    def counting(model: Any, plan: Any, cache: Any) -> Any:
        num_computed.append(len(plan))
        return forward(model, plan, cache)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(llm.model), "forward", counting)
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
    other.close()  # type: ignore[attr-defined]
    llm.generate("bca", params)
    text += "".join(event.text for event in stream)
    assert text == expected
