"""Signals wait for the end of a section, and reach the handler that was there before."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from forerun.interrupts import Uninterrupted, safe_point, when_safe
from tests.interrupting import files, interrupted_at, lines_of

INT, TERM = signal.SIGINT, signal.SIGTERM


pytestmark = pytest.mark.usefixtures("interruptible")


@pytest.fixture(autouse=True)
def unchanged_sigterm() -> Iterator[None]:
    before = signal.getsignal(TERM)
    yield
    signal.signal(TERM, before)


def test_what_arrives_in_a_section_comes_at_its_end() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012
        with Uninterrupted():
            os.kill(os.getpid(), INT)
            done.append("inside")
        done.append("after")
    assert done == ["inside"]
    assert signal.getsignal(INT) is signal.default_int_handler


def test_an_error_of_the_section_is_the_context_of_the_interrupt() -> None:
    with pytest.raises(KeyboardInterrupt) as raised, Uninterrupted():  # noqa: PT012
        signal.raise_signal(INT)
        raise KeyError
    assert isinstance(raised.value.__context__, KeyError)


def test_each_signal_reaches_a_handler_that_does_not_raise() -> None:
    heard: list[int] = []
    signal.signal(INT, lambda number, _: heard.append(number))
    with Uninterrupted():
        signal.raise_signal(INT)
        signal.raise_signal(INT)
        assert heard == []
    assert heard == [INT, INT]


def test_the_handler_of_another_signal_waits_as_well() -> None:
    done: list[str] = []
    signal.signal(TERM, lambda *_: when_safe(lambda: done.append("terminated")))
    signal.raise_signal(TERM)
    assert done == ["terminated"]
    with Uninterrupted():
        signal.raise_signal(TERM)
        done.append("inside")
    assert done == ["terminated", "inside", "terminated"]


@pytest.mark.parametrize("name", ["SIGQUIT", "SIGVTALRM", "SIGPROF", "SIGXCPU", "SIGCHLD"])
def test_so_does_any_other_whose_handler_may_raise(name: str) -> None:
    number, done = getattr(signal, name), list[str]()
    before = signal.signal(number, lambda *_: done.append(name))
    try:
        with Uninterrupted():
            signal.raise_signal(number)
            done.append("inside")
    finally:
        signal.signal(number, before)
    assert done == ["inside", name]


@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="no timer signals")
def test_an_alarm_waits_as_well() -> None:
    done = []

    def too_late(_number: int, _frame: Any) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, too_late)
    try:
        with pytest.raises(TimeoutError), Uninterrupted():  # noqa: PT012
            with Uninterrupted():
                signal.raise_signal(signal.SIGALRM)
            done.append("inside")
        assert signal.getsignal(signal.SIGALRM) is too_late
        assert signal.getsignal(INT) is signal.default_int_handler
        with pytest.raises(TimeoutError) as raised, Uninterrupted():  # noqa: PT012
            signal.raise_signal(signal.SIGALRM)
            raise KeyError
        assert isinstance(raised.value.__context__, KeyError)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert done == ["inside"]


def test_one_that_raises_takes_nothing_from_the_next() -> None:
    def terminate(_number: int, _frame: Any) -> None:
        raise SystemExit

    signal.signal(TERM, terminate)
    with pytest.raises(SystemExit) as raised, Uninterrupted():  # noqa: PT012
        signal.raise_signal(INT)
        signal.raise_signal(TERM)
    assert isinstance(raised.value.__context__, KeyboardInterrupt)


def test_a_section_that_is_put_back_afterwards_hands_on() -> None:
    heard: list[int] = []
    signal.signal(INT, lambda number, _: heard.append(number))
    with Uninterrupted():
        found = signal.signal(INT, signal.SIG_IGN)
    signal.signal(INT, found)
    signal.raise_signal(INT)
    assert heard == [INT]
    with Uninterrupted():
        signal.raise_signal(INT)
        assert heard == [INT]
    assert heard == [INT, INT]


def test_only_the_outermost_section_delivers() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), Uninterrupted():  # noqa: PT012
        with Uninterrupted():
            signal.raise_signal(INT)
        done.append("between")
    assert done == ["between"]


def test_a_safe_point_delivers_inside_a_section() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), Uninterrupted():  # noqa: PT012
        safe_point()
        done.append("nothing was there")
        signal.raise_signal(INT)
        safe_point()
        done.append("never")
    assert done == ["nothing was there"]
    assert signal.getsignal(INT) is signal.default_int_handler
    safe_point()


@pytest.mark.parametrize("handler", [signal.SIG_IGN, signal.SIG_DFL])
def test_what_never_raises_is_left_alone(handler: Any) -> None:
    signal.signal(INT, handler)
    with Uninterrupted() as section:
        assert signal.getsignal(INT) is handler
        assert not section.is_on
    assert signal.getsignal(INT) is handler


def test_a_handler_that_was_set_meanwhile_stays() -> None:
    def mine(_number: int, _frame: Any) -> None:
        pass

    with Uninterrupted():
        signal.signal(INT, mine)
    assert signal.getsignal(INT) is mine


def test_other_threads_change_nothing() -> None:
    found: list[Any] = []

    def work() -> None:
        with Uninterrupted() as section:
            found.extend((section.is_on, signal.getsignal(INT)))
            safe_point()

    with Uninterrupted():
        signal.raise_signal(INT)
        holder = signal.getsignal(INT)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert found == [False, holder]
        with pytest.raises(KeyboardInterrupt):
            safe_point()


def test_a_signal_at_any_line_leaves_handlers_and_section_whole() -> None:
    begun: list[int] = []
    ended: list[int] = []

    def work() -> None:
        with Uninterrupted():
            begun.append(1)
            sum(range(3))
            ended.append(1)

    def terminate(_number: int, _frame: Any) -> None:
        raise SystemExit

    signal.signal(TERM, terminate)
    here = files("interrupts.py")
    num_lines = len(lines_of(work, here))
    assert num_lines > 10
    for number in range(num_lines):
        assert interrupted_at(work, here, number), number
        assert begun == ended
        assert signal.getsignal(INT) is signal.default_int_handler
        assert signal.getsignal(TERM) is terminate
