"""Many requests in a pool too small for them: preempted, recomputed, sharing prefixes, cancelled,
and still every answer is the one that the same request gets alone without speculation."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from forerun.cache.cache_size import CacheSize
from forerun.engine import LLM
from forerun.types import SamplingParams

NUM_REQUESTS = 40
PREFIX = "the cat sat on the mat. the dog "


@pytest.fixture(scope="module")
def alone(plain: LLM) -> dict[int, tuple[int, ...]]:
    found = {}
    for idx, (prompt, params) in enumerate(requests()):
        found[idx] = plain.generate(prompt, params)[0].outputs[0].token_ids
    return found


def requests() -> Iterator[tuple[str, SamplingParams]]:
    rng = random.Random(5)
    for idx in range(NUM_REQUESTS):
        letters = "".join(rng.choice("abcde ") for _ in range(rng.randrange(1, 40)))
        prompt = PREFIX + letters if rng.random() < 0.5 else letters
        yield (
            prompt,
            SamplingParams(
                temperature=rng.choice([0.0, 0.7, 1.1]),
                top_p=rng.choice([0.9, 1.0]),
                repetition_penalty=rng.choice([1.0, 1.2]),
                max_tokens=rng.randrange(1, 50),
                stop=rng.choice([(), ("ab",)]),
                seed=idx,
            ),
        )


CONFIGS: dict[str, Any] = {
    "none": None,
    "auto": {},
    "tree": {"method": "own_layers", "num_layers": 2, "num_branches": 2, "adaptive": False},
    "fixed": {"method": "bigram", "num_speculative_tokens": 4, "adaptive": False},
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_crowded_pool_changes_nothing(
    plain: LLM,
    alone: dict[int, tuple[int, ...]],
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    crowded = CacheSize(num_pages=20, page_size=16)  # 320 rows for 8 seats of up to 256
    with monkeypatch.context() as patch:
        patch.setattr(CacheSize, "for_requests", lambda *_: crowded)
        llm = plain.with_speculation(CONFIGS[name])
    prompts, params = zip(*requests(), strict=True)
    for idx, result in enumerate(llm.generate(list(prompts), list(params))):
        assert result.outputs[0].token_ids == alone[idx], idx
    core = llm.engine.core
    assert core.cache.pool.num_free == core.cache.pool.num_pages == 20
    assert core.scheduler.is_idle
    assert not core.requests


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
