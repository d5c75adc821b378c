"""Measure concurrent requests: together against one by one, with speculation against without, and
against a peer's server."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from random import Random
from typing import Any, Final, Protocol

from forerun.bench.measure.bootstrap import interval_record
from forerun.bench.measure.contenders import DEFAULT, PLAIN
from forerun.bench.measure.timed_run import Clock
from forerun.bench.prompts.workloads import build_workloads
from forerun.engine import LLM
from forerun.models.text.tokenizer import Tokenizer
from forerun.types import SamplingParams

Prompts = Sequence[Sequence[int]]
OURS: Final = "forerun"


def mixed_prompts(
    classes: Sequence[str], num: int, seed: int, tokenizer: Tokenizer
) -> list[list[int]]:
    """Return `num` prompts, taken from the classes in turn."""
    workloads = build_workloads(classes, -(-num // len(classes)), seed)
    columns = zip(*(workload.prompts for workload in workloads), strict=True)
    mixed = itertools.chain.from_iterable(columns)
    return [prompt.encode(tokenizer) for prompt in itertools.islice(mixed, num)]


@dataclass(frozen=True)
class Answered:
    seconds: float
    tokens: tuple[tuple[int, ...], ...]  # of each prompt

    @property
    def num_tokens(self) -> int:
        return sum(map(len, self.tokens))


def answer_together(llm: LLM, prompts: Prompts, params: SamplingParams, clock: Clock) -> Answered:
    """Time all answers by wall clock, from an empty prefix cache."""
    llm.reset_prefix_cache()
    began = clock()
    answers = llm.generate([list(prompt) for prompt in prompts], params)
    seconds = clock() - began
    return Answered(seconds, tuple(answer.outputs[0].token_ids for answer in answers))


@dataclass(frozen=True)
class Round:
    """K concurrent requests, and the same K one after the other."""

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
    """Measure what sharing passes saves: each round has its own prompts, and runs them together and
    one by one in random order."""
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


@dataclass(frozen=True)
class Pair:
    """The same prompts with speculation and without; a ratio above 1: speculation was faster."""

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
    """Answer each list of prompts with speculation and without, in random order."""
    for prompts in pairs:
        order = random.sample((PLAIN, DEFAULT), 2)
        found = {name: answer_together(llms[name], prompts, params, clock) for name in order}
        plain, default = found[PLAIN], found[DEFAULT]
        same = plain.tokens == default.tokens
        yield Pair(len(prompts), plain.num_tokens, plain.seconds, default.seconds, same)


def load_record(pairs: Sequence[Pair], seed: int) -> dict[str, Any]:
    """Return the record, with ratios by number of concurrent requests."""
    ratios: dict[int, list[float]] = {}
    for pair in pairs:
        ratios.setdefault(pair.num_in_flight, []).append(pair.ratio)
    return {
        "ratio": {str(num): interval_record(values, seed) for num, values in ratios.items()},
        "same_tokens": all(pair.same_tokens for pair in pairs),
        "pairs": [asdict(pair) for pair in pairs],
    }


class Server(Protocol):
    """A peer that runs as many concurrent requests as Forerun does."""

    @property
    def name(self) -> str: ...

    def answer_all(
        self, prompts: Prompts, num_tokens: Sequence[int]
    ) -> tuple[float, Sequence[Sequence[int]]]:
        """Return the seconds for all answers, and the tokens of each."""


@dataclass(frozen=True)
class Repeat:
    """`seconds` and `num_tokens` by contender; Forerun is `forerun`."""

    seconds: dict[str, float]
    num_tokens: dict[str, int]

    def ratio(self, name: str) -> float:
        """Return Forerun's tokens per second ÷ the server's."""
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
    """In each repeat let Forerun and every server answer all prompts, in random order.

    The servers are asked for as many tokens as Forerun generates, which an untimed run counts.
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
