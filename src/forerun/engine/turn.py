"""Who may touch an engine now: one thread at a time, and nobody waits for ever."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Lock, get_ident
from types import TracebackType
from typing import Final

from forerun.interrupts import Uninterrupted

_MOMENT: Final = 0.05  # seconds between two looks for ^C while waiting


class Turn:
    """A reentrant lock with a queue, and errands that wait for nobody.

        with turn:            wait, then have the engine to yourself; ^C comes when it is over
        turn.post(errand)     done at once if nobody has the turn, else by whoever has it

    A thread that gives up its turn and wants it back at once goes behind those that wait: it has
    to pass `_next`, which the one who waits for `_lock` holds. An errand may be posted from
    anywhere, even by the garbage collector in the middle of a turn, so `post` never waits.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._next = Lock()
        self._owner: int | None = None
        self._depth = 0
        self._section = Uninterrupted()  # of who has the turn
        self._errands: deque[Callable[[], object]] = deque()

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
        section = self._section  # the next owner's will be there soon
        try:
            self._do_errands_and_release()
            self._do_errands_if_free()
        finally:
            section.__exit__()

    def post(self, errand: Callable[[], object]) -> None:
        """`errand` must not raise: whoever does it has nothing to do with it."""
        self._errands.append(errand)
        with Uninterrupted():
            self._do_errands_if_free()

    def _do_errands_if_free(self) -> None:
        """Whoever has the lock looks again after releasing it, so no errand is left behind."""
        while self._errands and self._lock.acquire(blocking=False):
            self._owner, self._depth = get_ident(), 1
            self._do_errands_and_release()

    def _do_errands_and_release(self) -> None:
        try:
            while self._errands:
                self._errands.popleft()()
        finally:
            self._owner, self._depth = None, 0
            self._lock.release()


def _wait_for(lock: Lock, section: Uninterrupted) -> None:
    """Whoever may be interrupted is so while it waits, and never with the lock in its hands."""
    if not section.is_on:
        lock.acquire()
        return
    while not lock.acquire(timeout=_MOMENT):
        section.deliver()
