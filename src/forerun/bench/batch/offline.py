"""Offline throughput: a list of prompts through `LLM.generate` and through a peer's server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from random import Random
from typing import Any, Final, Protocol

from forerun.bench.batch.in_flight import Answered, Prompts, answer_together
from forerun.bench.measure.bootstrap import interval_record
from forerun.bench.measure.timed_run import Clock
from forerun.engine import LLM
from forerun.types import SamplingParams

OURS: Final = "forerun"


class Server(Protocol):
    """A peer with as many slots as we have seats."""

    @property
    def name(self) -> str: ...

    def answer_all(
        self, prompts: Prompts, num_tokens: Sequence[int]
    ) -> tuple[float, Sequence[Sequence[int]]]:
        """Seconds, and the tokens of each."""


@dataclass(frozen=True)
class Repeat:
    """`seconds` and `num_tokens` by name; ours is `forerun`."""

    seconds: dict[str, float]
    num_tokens: dict[str, int]

    def ratio(self, name: str) -> float:
        """Our tokens per second over theirs."""
        theirs = self.num_tokens[name] / self.seconds[name]
        return self.num_tokens[OURS] / self.seconds[OURS] / theirs


def measure_offline(
    llm: LLM,
    servers: Sequence[Server],
    prompts: Prompts,
    num_repeats: int,
    params: SamplingParams,
    clock: Clock,
    seed: int,
) -> Iterator[Repeat]:
    """All prompts by everyone, again and again, in an order drawn anew each time.

    A peer is asked for as many tokens as we give; an answer that nobody times says how many.
    """
    random = Random(seed)
    counts = [len(tokens) for tokens in answer_together(llm, prompts, params, clock).tokens]
    for server in servers:
        server.answer_all(prompts[:1], [8])  # loads the model
    for _ in range(num_repeats):
        found: dict[str, Answered] = {}
        for one in random.sample([None, *servers], len(servers) + 1):
            if one is None:
                found[OURS] = answer_together(llm, prompts, params, clock)
            else:
                seconds, tokens = one.answer_all(prompts, counts)
                found[one.name] = Answered(seconds, tuple(map(tuple, tokens)))
        yield Repeat(
            {name: answered.seconds for name, answered in found.items()},
            {name: answered.num_tokens for name, answered in found.items()},
        )


def offline_record(repeats: Sequence[Repeat], seed: int) -> dict[str, Any]:
    names = [name for name in (repeats[0].seconds if repeats else ()) if name != OURS]
    return {
        "ratio": {n: interval_record([one.ratio(n) for one in repeats], seed) for n in names},
        "repeats": [asdict(one) for one in repeats],
    }
