"""One stream's events on their way from the engine's thread to an asyncio consumer."""

from __future__ import annotations

import asyncio
from threading import Lock

from forerun.engine.api.events import StreamEvent
from forerun.interrupts import Uninterrupted


class Mailbox:
    """Holds at most one event: what comes before it is read joins it.

    So a consumer that reads slowly gets fewer and larger events, never blocks the engine, and
    never holds more than the answer itself.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lock = Lock()
        self._news = asyncio.Event()
        self._is_announced = False
        self._is_closed = False
        self._pending: StreamEvent | None = None
        self._error: Exception | None = None

    def put(self, event: StreamEvent) -> bool:
        """From the engine's thread; False if nobody can read it any more."""
        with Uninterrupted(), self._lock:
            earlier = self._pending
            self._pending = event if earlier is None else earlier.followed_by(event)
        return self._announce()

    def fail(self, error: Exception) -> None:
        """No more events will come; `error` is raised once those that came are read."""
        with Uninterrupted(), self._lock:
            self._error = self._error or error
        self._announce()

    def close(self) -> None:
        """Nothing more is read; whoever waits for an event gets None."""
        self._is_closed = True
        self._wake()

    async def take(self) -> StreamEvent | None:
        """The next event, by the loop that made this mailbox; None once it is closed."""
        while not self._is_closed:
            self._news.clear()
            if (event := self._collect()) is not None:
                return event
            await self._news.wait()
        return None

    def _collect(self) -> StreamEvent | None:
        with Uninterrupted(), self._lock:
            self._is_announced = False
            event, self._pending = self._pending, None
            if event is None and self._error is not None:
                raise self._error
            return event

    def _announce(self) -> bool:
        with Uninterrupted(), self._lock:
            if self._is_announced:
                return not self._loop.is_closed()
            self._is_announced = True
        return self._wake()

    def _wake(self) -> bool:
        try:
            self._loop.call_soon_threadsafe(self._news.set)
        except RuntimeError:  # the loop is closed
            return False
        return True
