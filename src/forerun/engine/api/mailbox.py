"""Rounds on their way from the engine's thread to asyncio consumers.

One thread puts, one loop reads, and neither waits for the other: appending to a deque, emptying it
and setting a flag are each one step for all threads, so nothing here needs a lock.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final, Generic, TypeVar

Item = TypeVar("Item")
Deal = Callable[[], bool]


class Bell:
    """Wakes whoever waits for news of one question: it may have several answers."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop: Final = loop
        self.is_rung = False  # and nobody has looked since
        self._waiters: dict[asyncio.Future[None], Deal | None] = {}

    async def wait(self, deal: Deal | None = None) -> None:
        """Until it rings; `deal` is called then, and where that says that it was enough, the wait
        goes on: no task is woken for what is soon done. What it raises is raised here."""
        waiter = self.loop.create_future()
        self._waiters[waiter] = deal
        try:
            await waiter
        finally:
            del self._waiters[waiter]

    def wake(self) -> None:
        """In the loop's thread."""
        for waiter, deal in tuple(self._waiters.items()):
            if waiter.done():  # its task is on its way
                continue
            try:
                if deal is None or not deal():
                    waiter.set_result(None)
            except Exception as error:
                waiter.set_exception(error)


class Mailbox(Generic[Item]):
    """Gives all that came before it is read, at once.

    So a consumer that reads slowly reads seldom and much, never blocks the engine, and never holds
    more than the answer itself.
    """

    def __init__(self, bell: Bell) -> None:
        self.bell = bell
        self._pending: deque[Item] = deque()
        self._error: Exception | None = None

    def put(self, item: Item) -> None:
        """From the engine's thread; `ring` says that it is there."""
        self._pending.append(item)

    def fail(self, error: Exception) -> None:
        """No more will come; `error` is raised once what came is read."""
        self._error = self._error or error
        ring([self.bell])

    def look(self) -> bool:
        """Whether there is something to read. Whoever waits has looked or read just before."""
        self.bell.is_rung = False  # first: what comes from here on rings again
        return bool(self._pending) or self._error is not None

    def read(self) -> list[Item]:
        """What came since the last time."""
        self.bell.is_rung = False
        error = self._error  # before what came before it is looked at
        found = []
        while self._pending:
            found.append(self._pending.popleft())
        if error is not None and not found:
            raise error
        return found


def ring(bells: Iterable[Bell]) -> None:
    """Wake whoever waits, each loop once: a wake-up costs as much as a chunk."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Bell]] = {}
    for bell in bells:
        if not bell.is_rung:
            bell.is_rung = True
            by_loop.setdefault(bell.loop, []).append(bell)
    for loop, found in by_loop.items():
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(_wake_all, found)


def _wake_all(bells: Sequence[Bell]) -> None:
    for bell in bells:
        bell.wake()
