"""What a shared cache and chunked prompts do, as counts: no clock is looked at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from forerun.engine import LLM
from forerun.engine.request_options import RequestOptions
from forerun.types import SamplingParams


@dataclass(frozen=True)
class PrefixUse:
    """Prompt tokens that two requests with the same beginning had to compute."""

    num_shared: int
    num_computed_first: int
    num_computed_second: int


@dataclass(frozen=True)
class Admission:
    """Steps during which a long prompt was read, and in how many a running stream got a token."""

    num_prompt_tokens: int
    num_steps: int
    num_steps_with_token: int


def prefix_use(llm: LLM, prefix: Sequence[int], endings: Sequence[Sequence[int]]) -> PrefixUse:
    """Counted by the engine, once for each of two endings."""
    llm.reset_prefix_cache()
    first, second = (_num_computed(llm, [*prefix, *ending]) for ending in endings)
    return PrefixUse(len(prefix), first, second)


def _num_computed(llm: LLM, prompt: list[int]) -> int:
    before = llm.metrics()
    llm.generate(prompt, SamplingParams(temperature=0, max_tokens=1))
    after = llm.metrics()
    grown = {name: after[name] - before[name] for name in ("prompt_tokens", "cached_prompt_tokens")}
    return int(grown["prompt_tokens"] - grown["cached_prompt_tokens"])


def admission(llm: LLM, running: Sequence[int], long: Sequence[int]) -> Admission:
    """Let a short prompt run, then let a long one in beside it, and step until it is read."""
    llm.reset_prefix_cache()
    engine, params = llm.engine, SamplingParams(temperature=0, max_tokens=256, ignore_eos=True)
    (stream,) = llm.intake.requests(list(running), params, RequestOptions())
    (newcomer,) = llm.intake.requests(
        list(long), params.with_(max_tokens=1), RequestOptions(cache_salt="newcomer")
    )
    try:
        engine.add([stream])
        while not stream.output:
            engine.step()
        engine.add([newcomer])
        num_steps = num_with_token = 0
        while not newcomer.output:
            rounds = engine.step().rounds
            num_steps += 1
            num_with_token += any(done.request is stream for done in rounds)
        return Admission(len(long), num_steps, num_with_token)
    finally:
        engine.abort(stream)
        engine.abort(newcomer)


def sharing_record(prefix: PrefixUse, admitted: Admission) -> dict[str, Any]:
    return {"prefix": asdict(prefix), "admission": asdict(admitted)}
