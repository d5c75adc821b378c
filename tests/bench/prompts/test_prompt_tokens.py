"""Prompts of a known length, computed whole each time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from forerun.bench.measure.contenders import engines
from forerun.bench.prompts.workloads import build_workloads, cut_prompts
from forerun.cache import KVCache
from forerun.engine import LLM
from forerun.errors import InvalidOption
from forerun.types import SamplingParams


def test_every_prompt_has_exactly_so_many_tokens(llm: LLM) -> None:
    whole = build_workloads(["story", "chat"], 3, seed=0)
    cut = cut_prompts(whole, 20, llm.tokenizer)
    lengths = {len(p.encode(llm.tokenizer)) for w in cut for p in w.prompts}
    assert lengths == {20}
    begin = whole[0].prompts[0].encode(llm.tokenizer)[:20]
    assert cut[0].prompts[0].encode(llm.tokenizer) == begin
    assert cut[0].digest != whole[0].digest


def test_a_class_with_shorter_prompts_is_refused(llm: LLM) -> None:
    with pytest.raises(InvalidOption, match=r"class story has a prompt of \d+ tokens, fewer"):
        cut_prompts(build_workloads(["story"], 3, seed=0), 5000, llm.tokenizer)


def test_a_prompt_that_was_asked_before_costs_the_same_again(tiny_path: Path) -> None:
    llm = LLM(tiny_path, speculative_config=None, num_threads=1)
    prompt, params = list(range(20)) * 3, SamplingParams(max_tokens=2)
    llm.generate(prompt, params)
    assert llm.generate(prompt, params)[0].num_cached_tokens == 59
    llm.reset_prefix_cache()
    assert llm.generate(prompt, params)[0].num_cached_tokens == 0
    (plain,) = engines(llm, {}, params, iter(range(1000)).__next__)
    for _ in range(2):
        plain.answer(prompt, 2)
    assert plain.llm.metrics()["cached_prompt_tokens"] == 0


def test_forgetting_what_is_still_held_changes_no_answer(tiny_path: Path) -> None:
    llm = LLM(tiny_path, speculative_config=None, num_threads=1)
    params = SamplingParams(max_tokens=24, seed=4)
    (alone,) = llm.generate("once upon a time there was", params)
    events = []
    for event in llm.stream("once upon a time there was", params):
        llm.reset_prefix_cache()
        events.append(event)
    assert events[-1].output == replace(
        alone.outputs[0], stats=events[-1].output.stats if events[-1].output else {}
    )
    cache: KVCache = llm.engine.core.cache
    assert cache.pool.num_free == cache.pool.num_pages
