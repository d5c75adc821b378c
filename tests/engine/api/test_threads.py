"""Several threads, or the garbage collector, use one `LLM`: every answer is what it is alone."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from typing import Any

import pytest

from forerun.cache import BlockTable
from forerun.engine import LLM, AsyncEngine, step
from forerun.types import SamplingParams
from tests.engine.leaks import assert_nothing_is_held

PARAMS = SamplingParams(temperature=0.8, seed=4, max_tokens=20, ignore_eos=True)
PROMPTS = ["abc", "cab", "b", "the cat sat"]


@pytest.fixture
def llm(plain: LLM) -> LLM:
    return plain.with_speculation({"method": "own_layers", "num_layers": 2, "adaptive": False})


def tokens_of(llm: LLM, prompt: str, params: SamplingParams = PARAMS) -> tuple[int, ...]:
    return llm.generate(prompt, params)[0].outputs[0].token_ids


def in_threads(calls: list[Callable[[], Any]]) -> list[Any]:
    """Run each call in a thread of its own; return what each returned or raised."""
    found: list[Any] = [None] * len(calls)

    def run(idx: int) -> None:
        try:
            found[idx] = calls[idx]()
        except BaseException as error:
            found[idx] = error

    threads = [threading.Thread(target=run, args=(idx,), daemon=True) for idx in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return found


def test_threads_may_ask_one_llm(llm: LLM) -> None:
    alone = [tokens_of(llm, prompt) for prompt in PROMPTS]

    def ask_twice(prompt: str) -> list[tuple[int, ...]]:
        return [tokens_of(llm, prompt) for _ in range(2)]

    found = in_threads([lambda prompt=prompt: ask_twice(prompt) for prompt in PROMPTS])  # type: ignore[misc]
    assert found == [[tokens, tokens] for tokens in alone]
    assert_nothing_is_held(llm)


def test_a_stream_may_be_closed_while_another_thread_runs_it(llm: LLM) -> None:
    alone = tokens_of(llm, "abc")
    left = llm.stream("cab", PARAMS.with_(max_tokens=200))
    next(left)
    found = in_threads([lambda: tokens_of(llm, "abc"), left.close])
    assert found == [alone, None]
    assert_nothing_is_held(llm)


def test_a_stream_may_be_closed_while_another_thread_waits_for_its_next_event(llm: LLM) -> None:
    """As a stop button does: the reader's stream ends, and the request is gone."""
    stream = llm.stream("cab", PARAMS.with_(max_tokens=220))
    begun = threading.Event()

    def read() -> int:
        num = 0
        for _ in stream:
            num += 1
            if num == 3:
                begun.set()
        return num

    def stop() -> None:
        assert begun.wait(60)
        stream.close()

    (num, stopped) = in_threads([read, stop])
    assert stopped is None
    assert 3 <= num < 220
    assert_nothing_is_held(llm)


def test_a_stream_may_be_closed_before_its_first_event(llm: LLM) -> None:
    """Its reader waits for the lock, so the engine does not have the request yet."""
    stream = llm.stream("cab", PARAMS.with_(max_tokens=220))
    reader = threading.Thread(target=lambda: found.extend(stream), daemon=True)
    found: list[Any] = []
    with llm.engine.lock:
        reader.start()
        while llm.engine.lock._next.acquire(blocking=False):  # until the reader waits for the lock
            llm.engine.lock._next.release()
        stream.close()
    reader.join(60)
    assert not reader.is_alive()
    assert len(found) < 2
    assert_nothing_is_held(llm)


def test_twins_share_their_turns(llm: LLM, plain: LLM) -> None:
    """Two engines share a kernel set and its lock; one of them has a thread of its own."""
    alone = {prompt: tokens_of(plain, prompt) for prompt in PROMPTS}
    assert llm.engine.lock is plain.engine.lock

    async def ask(engine: AsyncEngine, prompt: str) -> tuple[int, ...]:
        return (await engine.generate(prompt, PARAMS)).outputs[0].token_ids

    async def main() -> None:
        async with AsyncEngine(llm) as engine:
            beside = asyncio.gather(*(asyncio.to_thread(tokens_of, plain, p) for p in PROMPTS))
            served = asyncio.gather(*(ask(engine, prompt) for prompt in PROMPTS))
            assert await beside == await served == list(alone.values())

    asyncio.run(main())
    assert_nothing_is_held(llm)


def test_the_prefix_cache_is_never_reset_in_the_middle_of_a_step(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread calls `reset_prefix_cache` while a request adopts the pages it found."""
    prompt = [1] * 40
    llm.generate(prompt, PARAMS)
    adopt, threads = BlockTable.adopt, list[threading.Thread]()

    def adopting(*args: Any) -> None:
        threads.append(threading.Thread(target=llm.reset_prefix_cache))
        threads[-1].start()
        threads[-1].join(0.2)
        adopt(*args)

    monkeypatch.setattr(BlockTable, "adopt", adopting)
    assert llm.generate([*prompt, 2], PARAMS)[0].num_cached_tokens == 40
    for thread in threads:
        thread.join()
    assert_nothing_is_held(llm)


class Cycle:
    """Keeps a stream alive until the garbage collector runs, as a traceback does."""

    def __init__(self, kept: object) -> None:
        self.kept = kept
        self.me = self


@pytest.mark.slow
@pytest.mark.parametrize("place", ["choose", "schedule", "draft", "forward", "verify", "commit"])
def test_a_stream_may_be_collected_in_the_middle_of_a_step(
    llm: LLM, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = tokens_of(llm, "abc")
    dropped = llm.stream("cab", PARAMS.with_(max_tokens=200))
    next(dropped)
    function = getattr(step, place)

    def collecting(*args: Any) -> Any:
        gc.collect()
        return function(*args)

    gc.collect()
    gc.disable()
    try:
        Cycle(dropped)
        del dropped
        monkeypatch.setattr(step, place, collecting)
        assert tokens_of(llm, "abc") == alone
    finally:
        gc.enable()
    assert_nothing_is_held(llm)
    assert llm.metrics()["requests"] == {"length": 2, "abort": 1}
