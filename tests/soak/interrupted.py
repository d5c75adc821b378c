"""A call that ^C ends anywhere, and what must be true of the same `LLM` afterwards."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

from forerun.engine import LLM
from forerun.types import SamplingParams
from tests.engine.leaks import assert_nothing_is_held
from tests.interrupting import files, interrupted_after, interrupted_at, lines_of

PROMPTS = ["abcabcabcabc", "the cat sat on the mat. the cat", "b"]
PARAMS = SamplingParams(temperature=0.8, seed=7, max_tokens=8, ignore_eos=True)
# The modules that keep state about requests, which ^C could leave inconsistent.
BOOKS = files("engine", "cache", "kernels/cpu/runtime/program.py", "interrupts.py")

Answers = list[tuple[int, ...]]


class Patient:
    """An `LLM` that is asked, interrupted and asked again: its answers must stay the same."""

    def __init__(self, llm: LLM) -> None:
        self.llm = llm
        self.answers = self.ask()
        self._lines = lines_of(self.work, BOOKS)

    def ask(self) -> Answers:
        found = self.llm.generate(PROMPTS, PARAMS)
        return [result.outputs[0].token_ids for result in found]

    def work(self) -> None:
        """Do all that callers do: a batch, and streams read to the end, closed early, dropped."""
        self.ask()
        for _ in self.llm.stream(PROMPTS[0], PARAMS):
            pass
        closed = self.llm.stream(PROMPTS[1], PARAMS)
        next(closed)
        closed.close()
        next(self.llm.stream(PROMPTS[2], PARAMS))
        self.llm.metrics()

    def interrupt_at(self, number: int) -> None:
        """Raise ^C at line `number` of those that `work` executes, then check the answers."""
        with nothing_is_swallowed():
            path, line = interrupted_at(self.work, BOOKS, number)
        self.check(f"{path}:{line}")

    def interrupt_after(self, seconds: float) -> None:
        with nothing_is_swallowed():
            interrupted_after(self.work, seconds)
        self.check(f"after {seconds} s")

    @property
    def num_lines(self) -> int:
        """Return how many lines `work` executes; a line executed twice counts twice."""
        return len(self._lines)

    def each_line(self, rng: Random) -> list[int]:
        """Return, for each distinct line, the number of one of its executions."""
        passed: dict[tuple[str, int], list[int]] = {}
        for number, place in enumerate(self._lines):
            passed.setdefault(place, []).append(number)
        return [rng.choice(numbers) for numbers in passed.values()]

    def check(self, where: str) -> None:
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler, where
        within(10, lambda: assert_nothing_is_held(self.llm), where)
        assert within(10, self.ask, where) == self.answers, where
        assert_nothing_is_held(self.llm)
        assert self.llm.metrics()["drafter_failures"] == 0, where


def within(seconds: float, call: Callable[[], Any], where: str) -> Any:
    """Call in another thread, so that a deadlock fails the test instead of hanging it."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(call()), daemon=True)
    thread.start()
    thread.join(seconds)
    assert found, f"no answer, {where}"
    return found[0]


@contextmanager
def nothing_is_swallowed() -> Iterator[None]:
    """Fail on an exception in a finalizer, which Python would only print."""
    swallowed: list[Any] = []
    before, sys.unraisablehook = sys.unraisablehook, lambda args: swallowed.append(args.exc_value)
    try:
        yield
    finally:
        sys.unraisablehook = before
    assert not swallowed, swallowed
