"""What a shared cache and chunked prompts promise, as counts: no clock is looked at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from forerun.bench.verdicts import Outcome
from forerun.engine import LLM
from forerun.engine.request_options import RequestOptions
from forerun.types import SamplingParams

COMPUTED_BELOW: Final = 32


@dataclass(frozen=True)
class PrefixUse:
    """Prompt tokens that two requests with the same beginning had to compute."""

    num_shared: int
    num_computed_first: int
    num_computed_second: int

    @property
    def outcome(self) -> Outcome:
        return Outcome(
            f"a second request with the same {self.num_shared}-token prefix computes fewer than "
            f"{COMPUTED_BELOW} prompt tokens",
            f"{self.num_computed_second} after {self.num_computed_first}",
            self.num_computed_second < COMPUTED_BELOW,
        )


@dataclass(frozen=True)
class Admission:
    """Steps during which a long prompt was read, and in how many a running stream got a token."""

    num_prompt_tokens: int
    num_steps: int
    num_steps_with_token: int

    @property
    def outcome(self) -> Outcome:
        return Outcome(
            f"a running stream gets a token in every step while {self.num_prompt_tokens} prompt "
            f"tokens are admitted",
            f"in {self.num_steps_with_token} of {self.num_steps} steps",
            self.num_steps_with_token == self.num_steps if self.num_steps > 1 else None,
        )


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
