"""The lock around an engine: one thread at a time, in fair order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Lock, get_ident
from types import TracebackType
from typing import Final

from forerun.interrupts import Uninterrupted

_MOMENT: Final = 0.05  # seconds between two checks for ^C while waiting


class EngineLock:
    """A reentrant, fair lock, and a queue of calls for the thread that holds it.

        with lock:            wait, then use the engine alone; ^C is raised after the section
        lock.defer(call)      called at once if the lock is free, else by the thread that holds it

    A thread that releases the lock and wants it back at once queues behind a waiting thread: it
    has to acquire `_next`, which the thread that waits for `_lock` holds. A call may be deferred
    from anywhere, even by the garbage collector while the lock is held, so `defer` never blocks.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._next = Lock()
        self._owner: int | None = None
        self._depth = 0
        self._section = Uninterrupted()  # the owner's
        self._deferred: deque[Callable[[], object]] = deque()

    def __enter__(self) -> None:
        me = get_ident()
        if self._owner == me:
            self._depth += 1
            return
        section = Uninterrupted()
        section.__enter__()
        try:
            _wait_for(self._next, section)
            try:
                _wait_for(self._lock, section)
            finally:
                self._next.release()
        except BaseException:  # ^C while it waited
            section.__exit__()
            raise
        self._owner, self._depth, self._section = me, 1, section

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._depth > 1:
            self._depth -= 1
            return
        section = self._section  # read before the release: the next owner puts its own there
        try:
            self._make_calls_and_release()
            self._make_calls_if_free()
        finally:
            section.__exit__()

    def defer(self, call: Callable[[], object]) -> None:
        """Queue `call`, and make it now if the lock is free. It must not raise: the thread that
        makes it may be one that has nothing to do with it."""
        self._deferred.append(call)
        with Uninterrupted():
            self._make_calls_if_free()

    def _make_calls_if_free(self) -> None:
        """Each owner does this again after it has released the lock, so no call is left behind."""
        while self._deferred and self._lock.acquire(blocking=False):
            self._owner, self._depth = get_ident(), 1
            self._make_calls_and_release()

    def _make_calls_and_release(self) -> None:
        try:
            while self._deferred:
                self._deferred.popleft()()
        finally:
            self._owner, self._depth = None, 0
            self._lock.release()


def _wait_for(lock: Lock, section: Uninterrupted) -> None:
    """Acquire `lock`. ^C may interrupt the wait, but is held back once the lock is acquired."""
    if lock.acquire(blocking=False):
        return
    if not section.is_on:
        lock.acquire()
        return
    while not lock.acquire(timeout=_MOMENT):
        section.deliver()
