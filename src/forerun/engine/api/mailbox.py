"""Rounds on their way from the engine's thread to asyncio consumers.

One thread puts, one event loop reads, and neither waits for the other. Appending to a deque,
popping from it and setting a flag are atomic, so nothing here needs a lock.
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
    """Wakes the tasks that wait for any of the answers to one prompt."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop: Final = loop
        self.is_rung = False  # since the last look at a mailbox
        self._waiters: dict[asyncio.Future[None], Deal | None] = {}

    async def wait(self, deal: Deal | None = None) -> None:
        """Wait until the bell rings and `deal`, called in the loop's thread, does not return True.

        So small pieces of news can be dealt with without waking the task. An exception of `deal` is
        raised here.
        """
        waiter = self.loop.create_future()
        self._waiters[waiter] = deal
        try:
            await waiter
        finally:
            del self._waiters[waiter]

    def wake(self) -> None:
        """Wake the waiting tasks whose `deal` does not suffice; in the loop's thread."""
        for waiter, deal in tuple(self._waiters.items()):
            if waiter.done():  # its task is already being woken
                continue
            try:
                if deal is None or not deal():
                    waiter.set_result(None)
            except Exception as error:
                waiter.set_exception(error)


class Mailbox(Generic[Item]):
    """A queue from which a read takes everything that has arrived.

    So a slow consumer reads seldom and much at a time, never blocks the engine, and never makes it
    hold more than the answer itself.
    """

    def __init__(self, bell: Bell) -> None:
        self.bell = bell
        self._pending: deque[Item] = deque()
        self._error: Exception | None = None

    def put(self, item: Item) -> None:
        """Add an item, in the engine's thread; `ring` the bell afterwards."""
        self._pending.append(item)

    def fail(self, error: Exception) -> None:
        """End the mailbox: `error` is raised once all items are read."""
        self._error = self._error or error
        ring([self.bell])

    def look(self) -> bool:
        """Whether there is something to read. A task has to look or read before it waits."""
        self.bell.is_rung = False  # first, so that later items ring again
        return bool(self._pending) or self._error is not None

    def read(self) -> list[Item]:
        """Take all items that have arrived since the last read."""
        self.bell.is_rung = False
        error = self._error  # read first: all items from before the error are then in the deque
        found = []
        while self._pending:
            found.append(self._pending.popleft())
        if error is not None and not found:
            raise error
        return found


def ring(bells: Iterable[Bell]) -> None:
    """Wake the waiting tasks, each loop once: a wake-up costs as much as writing a chunk."""
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
