"""^C anywhere: the interrupted call's requests are gone, and the next answer is right. A few
moments here, thousands in `make soak`."""

from __future__ import annotations

import asyncio
import itertools
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from forerun.engine import LLM, AsyncEngine
from forerun.engine.lock import EngineLock
from forerun.types import SamplingParams
from tests.engine.leaks import assert_nothing_is_held
from tests.interrupting import files, interrupted_at, lines_of
from tests.soak.interrupted import PARAMS, PROMPTS, Patient

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="no timer signals"),
    pytest.mark.usefixtures("interruptible"),
]
ENDLESS = SamplingParams(temperature=0, max_tokens=200, ignore_eos=True)


@pytest.fixture(scope="module")
def patient(plain: LLM) -> Patient:
    parts = ["suffix", "own_layers", "bigram"]
    return Patient(
        plain.with_speculation(
            {"method": "merge", "methods": parts, "num_layers": 2, "adaptive": False}
        )
    )


def test_an_interrupt_at_any_line_leaves_nothing_behind(patient: Patient) -> None:
    rng = Random(1)
    for number in rng.sample(patient.each_line(rng), 16):
        patient.interrupt_at(number)


def test_an_interrupt_at_any_time_leaves_nothing_behind(patient: Patient) -> None:
    rng = Random(2)
    for _ in range(16):
        patient.interrupt_after(rng.uniform(1e-4, 0.1))


def test_an_alarm_at_any_time_is_raised_as_it_is_and_leaves_nothing_behind(plain: LLM) -> None:
    """Time limits often use a signal handler that raises: its exception must reach the caller
    unchanged, not as a failed request."""
    llm = plain.with_speculation({"method": "own_layers", "num_layers": 2, "adaptive": False})
    expected = [one.outputs[0].token_ids for one in llm.generate(PROMPTS, PARAMS)]

    class TooLate(Exception):
        pass

    def too_late(_number: int, _frame: object) -> None:
        raise TooLate

    rng, num_raised = Random(3), 0
    before = signal.signal(signal.SIGALRM, too_late)
    try:
        for _ in range(16):
            try:
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-4, 0.05))
                while True:  # ends only if the alarm is not lost
                    llm.generate(PROMPTS, PARAMS)
            except TooLate:
                num_raised += 1
            assert_nothing_is_held(llm)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert num_raised == 16
    assert [one.outputs[0].token_ids for one in llm.generate(PROMPTS, PARAMS)] == expected


def test_a_step_is_whole(plain: LLM) -> None:
    """^C in a pass waits for the end of the step: all its tokens are counted, or none."""
    llm = plain.with_speculation(None)
    here = files("engine/step.py")
    work = lambda: llm.generate(PROMPTS, PARAMS)  # noqa: E731
    num_lines = len(lines_of(work, here))
    before = llm.metrics()
    for number in range(0, num_lines, num_lines // 20):
        assert interrupted_at(work, here, number)
        after = llm.metrics()
        assert (
            after["rounds"] - before["rounds"] == after["emitted_tokens"] - before["emitted_tokens"]
        )
        assert after["passes"] > before["passes"]
        before = after
    assert_nothing_is_held(llm)


def test_an_interrupt_between_two_events_leaves_the_stream_to_its_reader(plain: LLM) -> None:
    whole = [event.text for event in plain.stream("abc", PARAMS)]
    stream, found = plain.stream("abc", PARAMS), list[str]()
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012
        for event in stream:
            found.append(event.text)
            if len(found) == 2:
                signal.raise_signal(signal.SIGINT)
    assert plain.in_use()["requests"] == 1
    assert found + [event.text for event in stream] == whole
    assert_nothing_is_held(plain)


def test_an_interrupt_in_a_step_ends_the_stream(
    plain: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = plain.stream("abc", PARAMS)
    next(stream)
    draw = type(plain.model).draw

    def interrupted(*args: Any) -> Any:
        for _ in range(3):  # ^C several times
            signal.raise_signal(signal.SIGINT)
        return draw(*args)

    with monkeypatch.context() as patch:
        patch.setattr(type(plain.model), "draw", interrupted)
        with pytest.raises(KeyboardInterrupt):
            next(stream)
    assert list(stream) == []
    assert_nothing_is_held(plain)


def test_a_call_that_cannot_clean_up_is_forgotten(
    plain: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """^C twice: in the call, and again where its requests would be aborted."""

    def at_once(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(plain.engine, "step", at_once)
        patch.setattr(plain.engine, "abort", at_once)
        with pytest.raises(KeyboardInterrupt):
            plain.generate(PROMPTS, PARAMS)
    assert plain.engine.core.requests  # `abort` did not remove them
    assert_nothing_is_held(plain)


@pytest.mark.parametrize("how", ["close", "drop"])
def test_a_stream_that_nobody_reads_on_holds_nothing(plain: LLM, how: str) -> None:
    stream: Any = plain.stream("abc", PARAMS)
    next(stream)
    assert plain.in_use()["requests"] == 1
    if how == "close":
        stream.close()  # the stream object still exists
    else:
        stream = None
    assert_nothing_is_held(plain)


def test_who_waits_for_a_turn_can_be_interrupted() -> None:
    turn, has_it, may_end = EngineLock(), threading.Event(), threading.Event()

    def hold() -> None:
        with turn:
            has_it.set()
            may_end.wait()

    other = threading.Thread(target=hold)
    other.start()
    has_it.wait()
    main = threading.main_thread().ident or 0
    threading.Timer(0.05, lambda: signal.pthread_kill(main, signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt), turn:
        pytest.fail("another thread has the turn")
    may_end.set()
    other.join()
    with turn:  # the lock is free
        pass


def test_loading_is_interrupted_between_two_tensors(tiny_path: Path) -> None:
    """The same kernels can load another model afterwards."""
    first = LLM(tiny_path, speculative_config=None, kernels="cpu", num_threads=1)
    kernels = first.model.kernels
    load, loaded = kernels.load_matrix, list[str]()

    def load_matrix(source: Any, names: Any, biases: Any = ()) -> Any:
        found = load(source, names, biases)
        loaded.append(names[0])
        if len(loaded) == 3:
            signal.raise_signal(signal.SIGINT)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "load_matrix", load_matrix)
        with pytest.raises(KeyboardInterrupt):
            LLM(tiny_path, kernels=kernels)
    assert len(loaded) == 3
    second = LLM(tiny_path, kernels=kernels)
    for llm in (first, second):
        assert llm.generate("abc", PARAMS)[0].outputs[0].token_ids == (
            first.generate("abc", PARAMS)[0].outputs[0].token_ids
        )


def test_a_twin_in_the_making_can_be_interrupted(patient: Patient) -> None:
    here = files("engine/setup/building.py", "engine/api/llm.py", "engine/lock.py")
    work = lambda: patient.llm.with_speculation({"method": "suffix"})  # noqa: E731
    num_lines = len(lines_of(work, here))
    for number in range(0, num_lines, max(1, num_lines // 6)):
        assert interrupted_at(work, here, number)
        patient.check(str(number))


async def _serve(llm: LLM, num_rounds: int, arm: Callable[[], object]) -> None:
    """Serve streams for ever; after `num_rounds` batches call `arm`, which ends this."""
    if num_rounds == 0:
        arm()
    async with AsyncEngine(llm) as engine:
        for number in itertools.count(1):
            for stream in [engine.stream(prompt, ENDLESS) for prompt in PROMPTS]:
                async for _ in stream:
                    break
            if number == num_rounds:
                arm()


@pytest.mark.parametrize("num_rounds", [0, 1])
def test_asyncio_programs_close_when_they_are_interrupted(
    patient: Patient, num_rounds: int
) -> None:
    rng = Random(3)
    before = signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        for _ in range(5):
            arm = partial(signal.setitimer, signal.ITIMER_REAL, rng.uniform(1e-4, 0.05))
            with pytest.raises(KeyboardInterrupt):
                asyncio.run(_serve(patient.llm, num_rounds, arm))
            patient.check("asyncio")
    finally:
        signal.signal(signal.SIGALRM, before)


def test_an_async_engine_that_was_dropped_gives_the_model_back(patient: Patient) -> None:
    engine = AsyncEngine(patient.llm)
    thread = engine._thread._thread
    del engine
    thread.join(10)
    patient.check("dropped")
