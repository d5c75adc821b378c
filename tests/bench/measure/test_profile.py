"""A plain token's time, part by part."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from forerun.bench.measure.profile import measure_profile
from forerun.engine import LLM
from forerun.errors import InvalidOption
from forerun.types import SamplingParams

_KINDS = ("product", "attention", "norm", "rows", "whole")  # in the order of their turns


@pytest.fixture(scope="module")
def llm(tiny_path: Path) -> LLM:
    return LLM(tiny_path, speculative_config=None, kernels="cpu", num_threads=1)


def test_the_parts_add_up_to_the_token(llm: LLM) -> None:
    steps = itertools.accumulate(itertools.count(1))  # every look at the clock takes longer
    found = measure_profile(llm, steps.__next__, num_context=20, num_rounds=3)
    parts = found["parts"]
    assert {"product", "attention", "norm", "rows", "draw", "Python"} <= set(parts)
    assert sum(part["seconds"] for part in parts.values()) == pytest.approx(found["token_s"])
    config = llm.model.config
    values = 4 * 2 * 20 * config.num_layers * config.num_kv_heads * config.head_dim
    assert parts["attention"]["bytes"] >= values  # heads are padded
    assert parts["product"]["bytes"] > 4 * config.vocab_size * config.hidden_size


def test_attention_is_what_a_pass_takes_longer_than_one_without_it(llm: LLM) -> None:
    """Alone, it would meet the keys of other layers."""
    seconds = {"whole": 9.0, "attention": 6.5, "pass": 10.0, "token": 12.0}
    turn = itertools.cycle(["token", "pass", *_KINDS, "draw", "read"])
    now = [0.0, 0.0]  # the time, and how long the work under way takes

    def clock() -> float:
        now[0], now[1] = now[0] + now[1], 0.0 if now[1] else seconds.get(next(turn), 1.0)
        return now[0]

    found = measure_profile(llm, clock, num_context=20, num_rounds=2)
    assert found["parts"]["attention"]["seconds"] == pytest.approx(2.5)
    assert found["parts"]["between steps"]["seconds"] == pytest.approx(10 - 2.5 - 3)


def test_running_kinds_alone_spoils_no_answer(llm: LLM) -> None:
    params = SamplingParams(temperature=1.0, seed=3, max_tokens=12, ignore_eos=True)
    before = llm.generate([1, 2, 3], params)[0].outputs[0].token_ids
    measure_profile(llm, itertools.count().__next__, num_context=8, num_rounds=2)
    assert llm.generate([1, 2, 3], params)[0].outputs[0].token_ids == before


def test_the_reference_kernels_have_no_such_parts(tiny_path: Path) -> None:
    llm = LLM(tiny_path, speculative_config=None, kernels="reference")
    with pytest.raises(InvalidOption, match="drop --kernels reference"):
        measure_profile(llm, float)
