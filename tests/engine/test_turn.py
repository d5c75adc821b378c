"""Threads take turns; errands are done whoever has the turn."""

from __future__ import annotations

import threading
import time

from forerun.engine.turn import Turn


def test_an_errand_is_done_at_once_or_when_the_turn_is_over() -> None:
    turn, done = Turn(), list[str]()
    turn.post(lambda: done.append("free"))
    assert done == ["free"]
    with turn, turn:
        turn.post(lambda: done.append("held"))
        assert done == ["free"]
    assert done == ["free", "held"]


def test_an_errand_of_another_thread_does_not_wait_for_the_turn() -> None:
    turn, done = Turn(), list[str]()
    with turn:
        other = threading.Thread(target=lambda: turn.post(lambda: done.append("late")))
        other.start()
        other.join()
        assert done == []
    assert done == ["late"]


def test_an_error_ends_the_turn() -> None:
    turn, done = Turn(), list[int]()
    try:
        with turn:
            turn.post(lambda: done.append(1))
            raise KeyError
    except KeyError:
        pass
    other = threading.Thread(target=lambda: turn.post(lambda: done.append(2)))
    other.start()
    other.join()
    assert done == [1, 2]


def test_who_wants_another_turn_goes_behind_those_who_wait() -> None:
    turn, done = Turn(), list[str]()

    def wait_for_a_turn() -> None:
        with turn:
            done.append("waited")

    for _ in range(20):
        with turn:
            other = threading.Thread(target=wait_for_a_turn)
            other.start()
            while not turn._next.locked():
                time.sleep(0.0001)
        with turn:
            done.append("again")
        other.join()
    assert done == ["waited", "again"] * 20
