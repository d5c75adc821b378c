"""The cost of HTTP: the same prompts through a server and through the library, in turns."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from random import Random
from typing import Any, Final

from forerun.bench.measure.bootstrap import median_interval
from forerun.bench.prompts.named_prompts import NamedPrompt
from forerun.bench.serve.replies import Body, ask, ask_all
from forerun.bench.serve.servers import Server
from forerun.engine import LLM, AsyncEngine
from forerun.types import SamplingParams

WAYS: Final = ("generate", "whole", "streamed")
_PAUSE: Final = 0.002  # seconds between two reads of a client with many streams

Pair = Callable[[], AbstractContextManager[tuple[LLM, Server]]]  # makes a warmed-up pair


@dataclass(frozen=True)
class Together:
    """Seconds for the same concurrent prompts: by `LLM.generate`, by HTTP whole and streamed."""

    generate_s: float
    whole_s: float
    streamed_s: float
    same_text: bool


@dataclass(frozen=True)
class Alone:
    """One stream from the engine and over HTTP: the seconds until its first text, and from there to
    its end. `cpu_s` is the CPU time of the server's main thread."""

    engine_first_s: float
    engine_rest_s: float
    http_first_s: float
    http_rest_s: float
    num_chunks: int
    cpu_s: float | None

    @property
    def added_ms(self) -> float:
        """The time that HTTP adds to each chunk after the first."""
        return 1000 * (self.http_rest_s - self.engine_rest_s) / max(1, self.num_chunks - 1)

    @property
    def added_first_ms(self) -> float:
        return 1000 * (self.http_first_s - self.engine_first_s)


def chat_body(text: str, max_tokens: int, salt: str, **more: Any) -> Body:
    """Return a request body; its own salt keeps it from sharing prefixes with earlier requests."""
    return {
        "messages": [{"role": "user", "content": text}],
        "max_tokens": max_tokens,
        "temperature": 0,
        "seed": 0,
        "ignore_eos": True,
        "cache_salt": salt,
        **more,
    }


def plain_params(max_tokens: int) -> SamplingParams:
    return SamplingParams(temperature=0.0, seed=0, max_tokens=max_tokens, ignore_eos=True)


def warm_up(llm: LLM, server: Server, prompts: Sequence[NamedPrompt]) -> None:
    """So that nothing is compiled, read from disk or given memory for the first time while it is
    measured."""
    _generate(llm, prompts, 16, ["warm"] * len(prompts))
    ask_all(server.url, [chat_body(prompt.text, 16, "warm", stream=True) for prompt in prompts])


def measure_together(
    pair: Pair, prompts: Sequence[NamedPrompt], max_tokens: int, repeats: int, random: Random
) -> Iterator[Together]:
    """Each time by another pair: two that are alike differ by some percent while they live. Which
    way comes first is drawn."""
    for _ in range(repeats):
        found: dict[str, tuple[float, list[str]]] = {}
        with pair() as (llm, server):
            for way in random.sample(WAYS, len(WAYS)):
                salts = [f"{way} {idx}" for idx in range(len(prompts))]
                if way == "generate":
                    found[way] = _generate(llm, prompts, max_tokens, salts)
                else:
                    bodies = [
                        chat_body(prompt.text, max_tokens, salt, stream=way == "streamed")
                        for prompt, salt in zip(prompts, salts, strict=True)
                    ]
                    seconds, replies = ask_all(server.url, bodies, _PAUSE)
                    found[way] = seconds, [reply.text for reply in replies]
        seconds_of = {f"{way}_s": seconds for way, (seconds, _) in found.items()}
        same_text = all(texts == found["generate"][1] for _, texts in found.values())
        yield Together(**seconds_of, same_text=same_text)


def _generate(
    llm: LLM, prompts: Sequence[NamedPrompt], max_tokens: int, salts: list[str]
) -> tuple[float, list[str]]:
    """Time `LLM.generate` from text to text, as a server does it."""
    began = time.perf_counter()
    tokens = [prompt.encode(llm.tokenizer) for prompt in prompts]
    outputs = llm.generate(tokens, plain_params(max_tokens), cache_salt=salts)
    seconds = time.perf_counter() - began
    return seconds, [output.outputs[0].text for output in outputs]


def measure_alone(
    llm: LLM, server: Server, prompts: Sequence[NamedPrompt], max_tokens: int, random: Random
) -> Iterator[Alone]:
    for idx, prompt in enumerate(prompts):
        tokens, salt = prompt.encode(llm.tokenizer), f"alone {idx}"
        body = chat_body(prompt.text, max_tokens, salt, stream=True)
        engine_first = random.random() < 0.5
        engine = asyncio.run(_engine_stream(llm, tokens, max_tokens)) if engine_first else None
        before = server.main_thread_s
        reply = ask(server.url, body)
        after = server.main_thread_s
        if engine is None:
            engine = asyncio.run(_engine_stream(llm, tokens, max_tokens))
        cpu_s = None if before is None or after is None else after - before
        rest_s = reply.seconds - reply.first_s
        yield Alone(*engine, reply.first_s, rest_s, reply.num_chunks, cpu_s)


async def _engine_stream(llm: LLM, tokens: Sequence[int], max_tokens: int) -> tuple[float, float]:
    """Return the seconds until the first event, and from there to the last."""
    llm.reset_prefix_cache()
    first = None
    async with AsyncEngine(llm) as engine:
        began = time.perf_counter()
        async for _ in engine.stream(list(tokens), plain_params(max_tokens)):
            first = first or time.perf_counter()
        assert first is not None
        return first - began, time.perf_counter() - first


def together_record(rounds: Sequence[Together], seed: int) -> dict[str, Any]:
    """Return the record; ratios are throughput over HTTP ÷ throughput of `LLM.generate`."""
    ways = {
        "whole": [one.generate_s / one.whole_s for one in rounds],
        "streamed": [one.generate_s / one.streamed_s for one in rounds],
    }
    return {
        "same_text": all(one.same_text for one in rounds),
        **{f"{way}_ratio": _interval(ratios, seed) for way, ratios in ways.items()},
        "rounds": [asdict(one) for one in rounds],
    }


def alone_record(rounds: Sequence[Alone], seed: int) -> dict[str, Any]:
    cpu = [1000 * one.cpu_s / one.num_chunks for one in rounds if one.cpu_s is not None]
    return {
        "added_ms_per_chunk": _interval([one.added_ms for one in rounds], seed),
        "added_ms_to_the_first": _interval([one.added_first_ms for one in rounds], seed),
        "server_cpu_ms_per_chunk": _interval(cpu, seed),
        "rounds": [asdict(one) for one in rounds],
    }


def _interval(values: Sequence[float], seed: int) -> dict[str, float] | None:
    found = median_interval(values, seed)
    return None if found is None else asdict(found)
