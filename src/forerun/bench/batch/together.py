"""What sharing passes saves: K requests together against the same K one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from random import Random
from typing import Any

from forerun.bench.batch.in_flight import Prompts, answer_together
from forerun.bench.measure.bootstrap import interval_record
from forerun.bench.measure.timed_run import Clock
from forerun.engine import LLM
from forerun.types import SamplingParams


@dataclass(frozen=True)
class Round:
    num_prompt_tokens: int
    together_s: float
    alone_s: tuple[float, ...]
    same_tokens: bool

    @property
    def ratio(self) -> float:
        return self.together_s / sum(self.alone_s)


def measure_together(
    llm: LLM, rounds: Sequence[Prompts], params: SamplingParams, clock: Clock, seed: int
) -> Iterator[Round]:
    """Each round has prompts of its own; which way comes first is drawn."""
    random = Random(seed)
    for prompts in rounds:
        groups: list[Prompts] = [[prompt] for prompt in prompts]
        groups.insert(random.choice((0, len(groups))), prompts)
        found = [answer_together(llm, group, params, clock) for group in groups]
        (joint,) = (a for a, g in zip(found, groups, strict=True) if g is prompts)
        alone = [answer for answer in found if answer is not joint]
        yield Round(
            sum(map(len, prompts)),
            joint.seconds,
            tuple(answer.seconds for answer in alone),
            joint.tokens == tuple(answer.tokens[0] for answer in alone),
        )


def together_record(rounds: Sequence[Round], seed: int) -> dict[str, Any]:
    return {
        "ratio": interval_record([one.ratio for one in rounds], seed),
        "same_tokens": all(one.same_tokens for one in rounds),
        "rounds": [asdict(one) for one in rounds],
    }
