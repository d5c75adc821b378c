"""Threads take turns; a deferred call is made by whichever thread holds the lock."""

from __future__ import annotations

import threading
import time

from forerun.engine.lock import EngineLock


def test_a_call_is_made_at_once_or_when_the_lock_is_free() -> None:
    lock, done = EngineLock(), list[str]()
    lock.defer(lambda: done.append("free"))
    assert done == ["free"]
    with lock, lock:
        lock.defer(lambda: done.append("held"))
        assert done == ["free"]
    assert done == ["free", "held"]


def test_a_call_of_another_thread_does_not_wait_for_the_lock() -> None:
    lock, done = EngineLock(), list[str]()
    with lock:
        other = threading.Thread(target=lambda: lock.defer(lambda: done.append("late")))
        other.start()
        other.join()
        assert done == []
    assert done == ["late"]


def test_an_error_ends_the_turn() -> None:
    lock, done = EngineLock(), list[int]()
    try:
        with lock:
            lock.defer(lambda: done.append(1))
            raise KeyError
    except KeyError:
        pass
    other = threading.Thread(target=lambda: lock.defer(lambda: done.append(2)))
    other.start()
    other.join()
    assert done == [1, 2]


def test_who_wants_another_turn_goes_behind_those_who_wait() -> None:
    lock, done = EngineLock(), list[str]()

    def wait_for_a_turn() -> None:
        with lock:
            done.append("waited")

    for _ in range(20):
        with lock:
            other = threading.Thread(target=wait_for_a_turn)
            other.start()
            while not lock._next.locked():
                time.sleep(0.0001)
        with lock:
            done.append("again")
        other.join()
    assert done == ["waited", "again"] * 20
