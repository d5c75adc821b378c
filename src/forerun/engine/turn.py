"""Who may touch an engine now: one thread at a time, and nobody waits for ever."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Lock, get_ident
from types import TracebackType


class Turn:
    """A reentrant lock with a queue, and errands that wait for nobody.

        with turn:            wait, then have the engine to yourself
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
        self._errands: deque[Callable[[], None]] = deque()

    def __enter__(self) -> None:
        me = get_ident()
        if self._owner != me:
            with self._next:
                self._lock.acquire()
            self._owner = me
        self._depth += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._depth > 1:
            self._depth -= 1
            return
        self._do_errands_and_release()
        self._do_errands_if_free()

    def post(self, errand: Callable[[], None]) -> None:
        """`errand` must not raise: whoever does it has nothing to do with it."""
        self._errands.append(errand)
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
