"""Several requests answered at once, and the clock beside them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from forerun.bench.measure.timed_run import Clock
from forerun.bench.prompts.workloads import build_workloads
from forerun.engine import LLM
from forerun.models.text.tokenizer import Tokenizer
from forerun.types import SamplingParams

Prompts = Sequence[Sequence[int]]


@dataclass(frozen=True)
class Answered:
    seconds: float
    tokens: tuple[tuple[int, ...], ...]  # of each prompt

    @property
    def num_tokens(self) -> int:
        return sum(map(len, self.tokens))


def answer_together(llm: LLM, prompts: Prompts, params: SamplingParams, clock: Clock) -> Answered:
    """Wall clock of all answers, from an empty cache: nobody profits from an earlier run."""
    llm.reset_prefix_cache()
    began = clock()
    answers = llm.generate([list(prompt) for prompt in prompts], params)
    seconds = clock() - began
    return Answered(seconds, tuple(answer.outputs[0].token_ids for answer in answers))


def mixed_prompts(
    classes: Sequence[str], num: int, seed: int, tokenizer: Tokenizer
) -> list[list[int]]:
    """`num` prompts, of all classes in turn."""
    workloads = build_workloads(classes, -(-num // len(classes)), seed)
    columns = zip(*(workload.prompts for workload in workloads), strict=True)
    mixed = itertools.chain.from_iterable(columns)
    return [prompt.encode(tokenizer) for prompt in itertools.islice(mixed, num)]
