"""Many callers share one engine: those that read slowly, leave or fail do not affect others."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from forerun.engine import LLM, AsyncEngine, step
from forerun.engine.api.async_engine import Answer
from forerun.engine.api.events import EventBuilder, StreamEvent
from forerun.engine.engine import Stepped
from forerun.engine.request.request import Request
from forerun.engine.step import Round
from forerun.errors import (
    EngineClosed,
    EngineHung,
    EngineOverloaded,
    InvalidOption,
    RequestFailed,
    RequestTooLarge,
)
from forerun.types import SamplingParams
from tests.engine.leaks import assert_nothing_is_held

PARAMS = SamplingParams(temperature=0.8, seed=4, max_tokens=20, ignore_eos=True)
PROMPTS = ["abc", "cab", "b", "the cat sat on the mat. the cat", "abcabcabc", "a b c d"]


@pytest.fixture
def llm(plain: LLM) -> LLM:
    """An engine with a fixed speculation depth, so that nothing here depends on the clock."""
    return plain.with_speculation(
        {"method": "own_layers", "num_layers": 2, "num_branches": 2, "num_speculative_tokens": 3}
        | {"adaptive": False}
    )


def served(
    llm: LLM, body: Callable[[AsyncEngine], Awaitable[None]], **options: Any
) -> dict[str, Any]:
    """Run `body` with an `AsyncEngine`, check for leaks, and return the metrics."""

    async def main() -> None:
        async with AsyncEngine(llm, **options) as engine:
            await body(engine)

    asyncio.run(main())
    assert_nothing_is_held(llm)
    return llm.metrics()


async def text_of(answer: Answer) -> str:
    return "".join([event.text async for event in answer])


def texts_alone(plain: LLM, prompts: list[str], params: SamplingParams = PARAMS) -> list[str]:
    """Return each prompt's text alone; call it before the engine's thread uses the kernel set."""
    return [plain.generate(prompt, params)[0].outputs[0].text for prompt in prompts]


class Gate:
    """Replaces `engine.step`: every step waits until the gate is open."""

    def __init__(self, llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_open = threading.Event()
        self.is_reached = threading.Event()
        self._step = llm.engine.step
        monkeypatch.setattr(llm.engine, "step", self)

    def __call__(self) -> Stepped:
        self.is_reached.set()
        self.is_open.wait()
        return self._step()

    async def reached(self) -> None:
        await asyncio.to_thread(self.is_reached.wait)


def test_every_stream_is_what_it_is_alone(llm: LLM, plain: LLM) -> None:
    params = [PARAMS.with_(seed=seed, max_tokens=5 + 4 * seed) for seed in range(len(PROMPTS))]
    pairs = list(zip(PROMPTS, params, strict=True))
    alone = [texts_alone(plain, [prompt], each)[0] for prompt, each in pairs]

    async def body(engine: AsyncEngine) -> None:
        texts = await asyncio.gather(*(text_of(engine.stream(*pair)) for pair in pairs))
        assert texts == alone

    metrics = served(llm, body)
    assert metrics["requests"] == {"length": len(PROMPTS)}
    assert metrics["emitted_tokens"] == sum(each.max_tokens or 0 for each in params)
    assert metrics["drafters"]["own_layers"]["num_accepted_tokens"] > 0


def test_generate_waits_for_all_answers(llm: LLM, plain: LLM) -> None:
    alone = plain.generate("abc", PARAMS.with_(n=3))[0]

    async def body(engine: AsyncEngine) -> None:
        result = await engine.generate("abc", PARAMS.with_(n=3), cache_salt="a", priority=1)
        assert [o.token_ids for o in result.outputs] == [o.token_ids for o in alone.outputs]
        assert result.prompt == "abc"

    served(llm, body)


def test_a_slow_reader_gets_fewer_larger_events(llm: LLM, plain: LLM) -> None:
    (alone,) = texts_alone(plain, ["abc"], PARAMS.with_(max_tokens=60))

    async def body(engine: AsyncEngine) -> None:
        slow = engine.stream("abc", PARAMS.with_(max_tokens=60))
        first = await anext(slow)
        for _ in range(3):  # others are not held up
            await engine.generate("cab", PARAMS)
        await engine.drain()
        rest = [event async for event in slow]
        assert len(rest) == 1
        output = rest[0].output
        assert output is not None
        assert first.text + rest[0].text == output.text == alone
        assert first.tokens + rest[0].tokens == output.token_ids

    served(llm, body)


def test_whoever_wants_a_whole_answer_is_woken_twice(llm: LLM, plain: LLM) -> None:
    """With `whole=True` a reader wakes for the first event, to time it, and for the last, which
    has all the rest."""
    expected = texts_alone(plain, PROMPTS[:1])

    async def body(engine: AsyncEngine) -> None:
        (answer,) = engine.ask(PROMPTS[0], PARAMS, whole=True)
        events = [event async for event in answer]
        assert 1 <= len(events) <= 2
        assert "".join(event.text for event in events) == expected[0]
        assert sum(len(event.tokens) for event in events) == 20
        assert sum(len(event.origins) for event in events) == 20
        assert events[-1].output is not None
        told = [done for event in events for done in event.rounds]  # a late reader gets one event
        assert len(told) == 2, "rounds between are not kept"
        assert told[0].verdict.tokens == events[-1].output.token_ids[: len(told[0].verdict.tokens)]
        assert [done.finish_reason for done in told] == [None, "length"]

    served(llm, body)


def test_whoever_reads_makes_the_events(
    llm: LLM, plain: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events are built in the reader's thread, so an error there fails that request only."""
    expected, event, threads = texts_alone(plain, PROMPTS), EventBuilder.event, set[int]()

    def failing(builder: EventBuilder, done: Round) -> StreamEvent:
        threads.add(threading.get_ident())
        if done.request.prompt == GUILTY_IDS:
            raise RuntimeError("no idea")
        return event(builder, done)

    monkeypatch.setattr(EventBuilder, "event", failing)

    async def body(engine: AsyncEngine) -> None:
        answers = [engine.stream(prompt, PARAMS) for prompt in PROMPTS]
        with pytest.raises(RuntimeError, match="no idea"):
            await text_of(engine.stream(GUILTY, PARAMS))
        assert [await text_of(answer) for answer in answers] == expected
        assert threads == {threading.get_ident()}

    served(llm, body)


def test_a_step_wakes_a_loop_once(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step wakes a loop once, however many of its requests it served."""
    gate = Gate(llm, monkeypatch)
    steps, wakes = [], []

    def counted(step: Callable[[], Stepped] = llm.engine.step) -> Stepped:
        steps.append(1)
        return step()

    monkeypatch.setattr(llm.engine, "step", counted)

    async def body(engine: AsyncEngine) -> None:
        answers = [engine.stream(prompt, PARAMS) for prompt in PROMPTS]
        await gate.reached()
        loop = asyncio.get_running_loop()
        wake = loop.call_soon_threadsafe

        def counting(*args: Any) -> asyncio.Handle:
            wakes.append(1)
            return wake(*args)

        monkeypatch.setattr(loop, "call_soon_threadsafe", counting)
        gate.is_open.set()
        assert all(await asyncio.gather(*map(text_of, answers)))
        assert 0 < len(wakes) <= len(steps)

    served(llm, body)


@pytest.mark.parametrize("seed", range(3))
def test_a_storm_of_cancels(llm: LLM, plain: LLM, seed: int) -> None:
    """Readers leave at any moment and in every way: before the first step, between, at the end."""
    rng = random.Random(seed)
    params = PARAMS.with_(max_tokens=30)

    async def reads_all(answer: Answer) -> str:
        return await text_of(answer)

    async def breaks(answer: Answer) -> None:
        async for _ in answer:
            if rng.random() < 0.3:
                break

    async def closes(answer: Answer) -> None:
        await anext(answer)
        await answer.aclose()
        assert [event async for event in answer] == []

    async def never_reads(answer: Answer) -> None:
        del answer

    async def is_cancelled(answer: Answer) -> None:
        task = asyncio.ensure_future(text_of(answer))
        for _ in range(rng.randrange(6)):
            await asyncio.sleep(0.001 * rng.random())
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    ways: list[Callable[[Answer], Coroutine[Any, Any, Any]]] = [
        reads_all, breaks, closes, never_reads, is_cancelled,
    ]  # fmt: skip
    prompts = [rng.choice(PROMPTS) for _ in range(40)]
    alone = dict(zip(PROMPTS, texts_alone(plain, PROMPTS, params), strict=True))

    async def body(engine: AsyncEngine) -> None:
        tasks = []
        for idx, prompt in enumerate(prompts):
            answer = engine.stream(prompt, params, priority=rng.randrange(-2, 3))
            tasks.append(asyncio.ensure_future(ways[idx % len(ways)](answer)))
            del answer
            if rng.random() < 0.3:
                await asyncio.sleep(0)
        found = await asyncio.gather(*tasks)
        for prompt, text in list(zip(prompts, found, strict=True))[:: len(ways)]:
            assert text == alone[prompt]

    metrics = served(llm, body)
    assert sum(metrics["requests"].values()) == 40
    assert metrics["requests"]["abort"] >= 8


def test_one_too_many_is_refused(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(llm, monkeypatch)

    async def body(engine: AsyncEngine) -> None:
        answers = [engine.stream("abc", PARAMS) for _ in range(llm.max_num_seqs + 2)]
        with pytest.raises(EngineOverloaded, match="try again later"):
            engine.stream("abc", PARAMS)
        with pytest.raises(EngineOverloaded):
            await engine.generate("abc", PARAMS.with_(n=3))
        with pytest.raises(InvalidOption, match="n=11 is not allowed, as 10 requests may run"):
            await engine.generate("abc", PARAMS.with_(n=11))
        answers.pop().cancel()
        answers.append(engine.stream("abc", PARAMS))  # a place is free again
        gate.is_open.set()
        assert len({await text_of(answer) for answer in answers}) == 1

    served(llm, body, max_num_waiting=2)


def come_and_go(engine: AsyncEngine) -> None:
    for _ in range(1000):
        engine.stream("abc", PARAMS).cancel()


def test_those_who_come_and_leave_do_not_pile_up(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(llm, monkeypatch)

    async def body(engine: AsyncEngine) -> None:
        first = engine.stream("abc", PARAMS)
        await gate.reached()
        with pytest.raises(EngineOverloaded):
            come_and_go(engine)
        gate.is_open.set()
        assert await text_of(first)

    served(llm, body, max_num_waiting=2)


def test_draining_finishes_what_was_taken(llm: LLM, plain: LLM) -> None:
    alone = texts_alone(plain, PROMPTS) * 3

    async def body(engine: AsyncEngine) -> None:
        answers = [engine.stream(prompt, PARAMS) for prompt in PROMPTS * 3]
        draining = asyncio.ensure_future(engine.drain())
        await asyncio.sleep(0)
        with pytest.raises(EngineClosed, match="about to close"):
            engine.stream("abc", PARAMS)
        await draining
        assert [await text_of(answer) for answer in answers] == alone

    metrics = served(llm, body)
    assert metrics["requests"] == {"length": 18}


def test_closing_at_once_ends_every_stream(llm: LLM) -> None:
    async def main() -> None:
        engine = AsyncEngine(llm)
        answers = [engine.stream(prompt, PARAMS.with_(max_tokens=200)) for prompt in PROMPTS]
        await anext(answers[0])
        await engine.shutdown(finish=False)
        assert not engine.is_healthy
        for answer in answers:
            with pytest.raises(EngineClosed):
                await text_of(answer)
        with pytest.raises(EngineClosed, match="was closed"):
            engine.stream("abc")
        await engine.shutdown()

    asyncio.run(main())
    assert_nothing_is_held(llm)
    assert llm.generate("abc", PARAMS)  # the engine is free again


def test_an_error_in_the_body_closes_at_once(llm: LLM) -> None:
    async def main() -> None:
        async with AsyncEngine(llm) as engine:
            answer = engine.stream("abc", PARAMS.with_(max_tokens=200))
            await anext(answer)
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        asyncio.run(main())
    assert_nothing_is_held(llm)


def test_a_hung_step_is_noticed_and_survived(
    llm: LLM, plain: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(llm, monkeypatch)
    alone = plain.generate("abc", PARAMS)[0].outputs[0].token_ids

    async def body(engine: AsyncEngine) -> None:
        answers = [engine.stream(prompt, PARAMS) for prompt in PROMPTS]
        for answer in answers:
            with pytest.raises(EngineHung, match=r"longer than 0\.05 s"):
                await text_of(answer)
        assert engine.is_healthy is False
        with pytest.raises(EngineHung):
            engine.stream("abc", PARAMS)
        gate.is_open.set()
        while not bool(engine.is_healthy):
            await asyncio.sleep(0.001)
        engine._thread._step_timeout_s = 1e9  # steps may be slow from here on
        result = await engine.generate("abc", PARAMS)
        assert result.outputs[0].token_ids == alone

    metrics = served(llm, body, step_timeout_s=0.05)
    assert metrics["requests"] == {"abort": len(PROMPTS), "length": 1}


def test_closing_does_not_wait_for_a_hung_step(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(llm, monkeypatch)

    async def main() -> None:
        engine = AsyncEngine(llm, step_timeout_s=0.05)
        answer = engine.stream("abc", PARAMS)
        with pytest.raises(EngineHung):
            await anext(answer)
        await engine.shutdown()
        gate.is_open.set()
        await asyncio.to_thread(engine._thread._thread.join)

    asyncio.run(main())
    assert_nothing_is_held(llm)


GUILTY, GUILTY_IDS = "zzz", (25, 25, 25)


def run_with_one_guilty(llm: LLM, alone: list[str]) -> None:
    """Check that one failing request leaves the others' answers as they are alone."""

    async def body(engine: AsyncEngine) -> None:
        answers = [engine.stream(prompt, PARAMS) for prompt in PROMPTS]
        with pytest.raises(RequestFailed, match="no idea") as caught:
            await text_of(engine.stream(GUILTY, PARAMS))
        assert isinstance(caught.value.__cause__, RuntimeError)
        assert [await text_of(answer) for answer in answers] == alone

    metrics = served(llm, body)
    assert metrics["requests"] == {"length": len(PROMPTS), "error": 1}


@pytest.mark.parametrize("place", ["judge", "cut"])
def test_a_request_fails_alone(
    llm: LLM, plain: LLM, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = texts_alone(plain, PROMPTS)
    function = getattr(step, place)

    def failing(request: Request, *rest: Any) -> Any:
        if request.prompt == GUILTY_IDS and len(request.output) > 3:
            raise RuntimeError("no idea")
        return function(request, *rest)

    monkeypatch.setattr(step, place, failing)
    run_with_one_guilty(llm, alone)


def test_a_pass_that_fails_is_the_fault_of_one(
    llm: LLM, plain: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = texts_alone(plain, PROMPTS)
    draw = type(llm.model).draw

    def failing(model: Any, plan: Any, cache: Any, *rest: Any) -> Any:
        spans = [row.span for row in plan.rows] if cache is llm.engine.core.cache else []
        if any(span.start == 0 and span.tokens == GUILTY_IDS for span in spans):
            raise RuntimeError("no idea")
        return draw(model, plan, cache, *rest)

    monkeypatch.setattr(type(llm.model), "draw", failing)
    run_with_one_guilty(llm, alone)


def test_a_step_that_fails_takes_those_who_run_and_no_more(
    llm: LLM, plain: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    (alone,) = texts_alone(plain, ["abc"])
    forward, num_calls = step.forward, 0

    def failing(*args: Any) -> Any:
        nonlocal num_calls
        num_calls += 1
        if num_calls == 3:
            raise RuntimeError("out of order")
        return forward(*args)

    monkeypatch.setattr(step, "forward", failing)

    async def body(engine: AsyncEngine) -> None:
        answers = [engine.stream("abc", PARAMS) for _ in range(llm.max_num_seqs + 3)]
        done = await asyncio.gather(*map(text_of, answers), return_exceptions=True)
        failed = [text for text in done if isinstance(text, RequestFailed)]
        assert 1 <= len(failed) <= llm.max_num_seqs
        assert {text for text in done if isinstance(text, str)} == {alone}

    served(llm, body)


def test_the_llm_is_not_to_be_used_beside_its_engine(llm: LLM) -> None:
    async def body(engine: AsyncEngine) -> None:
        await engine.generate("abc", PARAMS)
        with pytest.raises(InvalidOption, match="served by an AsyncEngine"):
            llm.generate("abc", PARAMS)
        with pytest.raises(InvalidOption, match="still answers somebody else"):
            AsyncEngine(llm)

    served(llm, body)
    stream = llm.stream("abc", PARAMS)
    next(stream)
    with pytest.raises(InvalidOption, match="still answers somebody else"):
        AsyncEngine(llm)
    stream.close()


def test_a_loop_that_closes_takes_its_streams_along(llm: LLM, plain: LLM) -> None:
    alone = plain.generate("abc", PARAMS)[0].outputs[0].token_ids
    engine = AsyncEngine(llm)
    kept = []

    async def forgetful() -> None:
        kept.append(engine.stream("abc", PARAMS.with_(max_tokens=200)))
        await anext(kept[0])

    async def tidy() -> None:
        result = await engine.generate("abc", PARAMS)
        assert result.outputs[0].token_ids == alone
        await engine.shutdown()

    asyncio.run(forgetful())
    asyncio.run(tidy())
    assert_nothing_is_held(llm)


def test_a_loop_that_closes_before_an_event_is_read(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop closes after the engine notified it of an event and before the event is read."""
    gate = Gate(llm, monkeypatch)
    engine = AsyncEngine(llm)
    kept = []

    async def forgetful() -> None:
        kept.append(engine.stream("abc", PARAMS.with_(max_tokens=200)))
        gate.is_open.set()
        while kept[0].request.round_idx < 2:  # the loop was notified of the first round
            await asyncio.sleep(0.001)
        gate.is_open.clear()

    asyncio.run(forgetful())
    gate.is_open.set()
    asyncio.run(engine.shutdown())
    assert llm.metrics()["requests"] == {"abort": 1}
    assert_nothing_is_held(llm)


@pytest.mark.parametrize("way", ["cancel", "aclose"])
def test_a_stream_closed_by_another_task_ends_for_its_reader(
    llm: LLM, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    gate = Gate(llm, monkeypatch)

    async def body(engine: AsyncEngine) -> None:
        answer = engine.stream("abc", PARAMS.with_(max_tokens=200))
        reader = asyncio.ensure_future(text_of(answer))
        await gate.reached()
        if way == "aclose":
            await answer.aclose()
        else:
            answer.cancel()
        done, _ = await asyncio.wait([reader], timeout=5)
        gate.is_open.set()
        assert done
        assert await reader == ""

    assert served(llm, body)["requests"] == {"abort": 1}


def test_leaving_the_context_of_a_stream_ends_it(llm: LLM) -> None:
    async def body(engine: AsyncEngine) -> None:
        async with engine.stream("abc", PARAMS.with_(max_tokens=200)) as answer:
            async for _ in answer:
                break
        assert [event async for event in answer] == []

    assert served(llm, body)["requests"] == {"abort": 1}


def test_the_prefix_cache_is_reset_between_two_steps(llm: LLM) -> None:
    prompt = [idx % 30 for idx in range(60)]

    async def body(engine: AsyncEngine) -> None:
        first = await engine.generate(prompt, PARAMS)
        busy = engine.stream("cba", PARAMS.with_(max_tokens=100))
        await engine.reset_prefix_cache()
        again = await engine.generate(prompt, PARAMS)
        assert again.num_cached_tokens == 0
        assert again.outputs[0].token_ids == first.outputs[0].token_ids
        assert await text_of(busy)

    served(llm, body)


def test_bad_requests_are_refused_at_once(llm: LLM) -> None:
    async def body(engine: AsyncEngine) -> None:
        options: list[Any] = [{"priority": 1000}, {"cache_salt": 1}]
        for bad in (*options, {"speculation": {"drafter": "x"}}):
            with pytest.raises(InvalidOption):
                engine.stream("abc", PARAMS, **bad)
        with pytest.raises(InvalidOption, match="in a stream"):
            engine.stream("abc", PARAMS.with_(n=2))
        with pytest.raises(RequestTooLarge):
            await engine.generate("abc", PARAMS.with_(max_tokens=1000))
        with pytest.raises(InvalidOption, match="is no prompt"):
            engine.stream([1.5], PARAMS)  # type: ignore[list-item]

    assert served(llm, body)["requests"] == {}


@pytest.mark.parametrize(
    "options",
    [
        *({"max_num_waiting": -1}, {"max_num_waiting": 1.5}),
        *({"step_timeout_s": 0}, {"step_timeout_s": "x"}, {"step_timeout_s": float("inf")}),
    ],
)
def test_bad_limits(plain: LLM, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption, match=next(iter(options))):
        AsyncEngine(plain, **options)
    with pytest.raises(InvalidOption, match="llm=5 is not allowed; it must be an LLM"):
        AsyncEngine(5)  # type: ignore[arg-type]


def test_a_crowded_pool(tiny_path: Path) -> None:
    llm = LLM(tiny_path, speculative_config=None, kv_cache_memory="150KB", kernels="reference")

    async def body(engine: AsyncEngine) -> None:
        params = PARAMS.with_(max_tokens=60)
        answers = [engine.stream(prompt, params) for prompt in PROMPTS * 2]
        texts = await asyncio.gather(*map(text_of, answers))
        assert texts[: len(PROMPTS)] == texts[len(PROMPTS) :]

    assert served(llm, body)["preemptions"] > 0


def test_a_round_that_is_told_holds_no_distributions(llm: LLM) -> None:
    """Unread rounds stay in memory, and each q is as long as the vocabulary."""
    params = PARAMS.with_(acceptance="rejection")

    async def body(engine: AsyncEngine) -> None:
        answer = engine.stream("abc", params)
        await engine.drain()
        rounds = [told async for event in answer for told in event.rounds]
        draws = [draw for told in rounds for draw in told.proposal.draws]
        assert draws
        assert all(draw.probs_q is None for draw in draws)

    served(llm, body)


def test_whoever_watches_does_not_end_dropped_streams_without_a_word(llm: LLM) -> None:
    """If `metrics` ended dropped streams silently, their places would be taken for ever."""

    async def body(engine: AsyncEngine) -> None:
        for _ in range(40):
            answer = engine.stream("abc", PARAMS.with_(max_tokens=100))
            async for _event in answer:
                break
            del answer, _event
            for _ in range(10):
                engine.metrics()
                await asyncio.sleep(0)
        async with asyncio.timeout(60):
            await engine.drain()

    served(llm, body, max_num_waiting=100)
