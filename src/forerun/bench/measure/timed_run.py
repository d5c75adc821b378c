"""One answer, with the time at which each of its tokens came."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice

from forerun.engine import LLM, RequestSpeculation
from forerun.types import SamplingParams

Clock = Callable[[], float]


@dataclass(frozen=True)
class Pass:
    """One target pass that verified `num_guesses`, down to `depth`, and accepted a path of them."""

    num_guesses: int
    depth: int
    num_accepted: int
    seconds: float  # since the tokens of the pass before


@dataclass(frozen=True)
class TimedRun:
    """`arrivals` are (seconds since the request, new tokens); the first one ends the prompt."""

    tokens: tuple[int, ...]
    arrivals: tuple[tuple[float, int], ...]
    passes: tuple[Pass, ...] = ()  # after the first token; empty if not reported
    num_guesses: int = 0
    num_accepted: int = 0

    @property
    def seconds(self) -> float:
        """The time of the whole answer, prompt included."""
        return self.arrivals[-1][0]

    @property
    def ttft(self) -> float:
        return self.arrivals[0][0]

    @property
    def num_decoded(self) -> int:
        """The tokens after the first arrival, which the prompt's pass computes."""
        return len(self.tokens) - self.arrivals[0][1]

    @property
    def decode_seconds(self) -> float:
        return self.seconds - self.ttft

    @property
    def seconds_per_token(self) -> float | None:
        """The mean inter-token latency of this answer; None where nothing was decoded."""
        if self.num_decoded < 1 or self.decode_seconds <= 0:
            return None
        return self.decode_seconds / self.num_decoded

    @property
    def waits(self) -> Iterator[float]:
        """The wait before each token after the first; tokens that come together wait 0."""
        last = self.ttft
        for at, num in self.arrivals[1:]:
            yield at - last
            yield from [0.0] * (num - 1)
            last = at

    @property
    def digest(self) -> str:
        return digest(self.tokens)


def digest(tokens: Sequence[int]) -> str:
    """Return a short hash; equal digests mean the very same tokens."""
    return hashlib.sha256(",".join(map(str, tokens)).encode()).hexdigest()[:16]


def time_stream(
    llm: LLM,
    prompt: Sequence[int],
    params: SamplingParams,
    clock: Clock,
    num_rounds: int | None = None,
    speculation: RequestSpeculation | None = None,
) -> TimedRun:
    """Stream one answer, or its first rounds, and note the time whenever tokens come."""
    began = clock()
    tokens: list[int] = []
    arrivals: list[tuple[float, int]] = []
    passes: list[Pass] = []
    # Closing the stream ends a request that is left early.
    with closing(llm.stream(list(prompt), params, speculation=speculation)) as stream:
        for event in islice(stream, num_rounds):
            at = clock() - began
            proposal = event.round.proposal
            if arrivals:
                wait = at - arrivals[-1][0]
                accepted = event.round.verdict.num_accepted
                passes.append(Pass(len(proposal), proposal.depth, accepted, wait))
            tokens += event.tokens
            arrivals.append((at, len(event.tokens)))
    return TimedRun(
        tuple(tokens),
        tuple(arrivals),
        tuple(passes),
        sum(p.num_guesses for p in passes),
        sum(p.num_accepted for p in passes),
    )
