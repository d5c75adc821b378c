"""Speculation under load: so many requests in flight, with guesses and without."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from random import Random
from typing import Any

from forerun.bench.batch.in_flight import Prompts, answer_together
from forerun.bench.measure.bootstrap import interval_record
from forerun.bench.measure.contenders import DEFAULT, PLAIN
from forerun.bench.measure.timed_run import Clock
from forerun.engine import LLM
from forerun.types import SamplingParams


@dataclass(frozen=True)
class Pair:
    """The same prompts both ways; a ratio above 1 says that speculation was faster."""

    num_in_flight: int
    num_tokens: int
    plain_s: float
    default_s: float
    same_tokens: bool

    @property
    def ratio(self) -> float:
        return self.plain_s / self.default_s


def measure_load(
    llms: Mapping[str, LLM],
    pairs: Sequence[Prompts],
    params: SamplingParams,
    clock: Clock,
    random: Random,
) -> Iterator[Pair]:
    """Both ways on each list of prompts before the next, in an order drawn anew."""
    for prompts in pairs:
        order = random.sample((PLAIN, DEFAULT), 2)
        found = {name: answer_together(llms[name], prompts, params, clock) for name in order}
        plain, default = found[PLAIN], found[DEFAULT]
        yield Pair(
            len(prompts),
            plain.num_tokens,
            plain.seconds,
            default.seconds,
            plain.tokens == default.tokens,
        )


def load_record(pairs: Sequence[Pair], seed: int) -> dict[str, Any]:
    """Ratios by the number of requests in flight."""
    ratios: dict[int, list[float]] = {}
    for pair in pairs:
        ratios.setdefault(pair.num_in_flight, []).append(pair.ratio)
    return {
        "ratio": {str(num): interval_record(values, seed) for num, values in ratios.items()},
        "same_tokens": all(pair.same_tokens for pair in pairs),
        "pairs": [asdict(pair) for pair in pairs],
    }
