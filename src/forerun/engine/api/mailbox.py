"""One stream's events on their way from the engine's thread to an asyncio consumer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from threading import Lock

from forerun.engine.api.events import StreamEvent
from forerun.interrupts import Uninterrupted


class Mailbox:
    """Gives one event: what comes before it is read joins it.

    So a consumer that reads slowly gets fewer and larger events, never blocks the engine, and
    never holds more than the answer itself.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lock = Lock()
        self._news = asyncio.Event()
        self._is_announced = False
        self._is_closed = False
        self._pending: list[StreamEvent] = []  # joined when they are read: in time that is linear
        self._error: Exception | None = None

    def put(self, event: StreamEvent) -> None:
        """From the engine's thread; `deliver` says that it is there."""
        with Uninterrupted(), self._lock:
            self._pending.append(event)

    def fail(self, error: Exception) -> None:
        """No more events will come; `error` is raised once those that came are read."""
        with Uninterrupted(), self._lock:
            self._error = self._error or error
        deliver([self])

    def close(self) -> None:
        """Nothing more is read; whoever waits for an event gets None."""
        self._is_closed = True
        self._wake()

    async def take(self) -> StreamEvent | None:
        """The next event, by the loop that made this mailbox; None once it is closed."""
        while not self._is_closed:
            self._news.clear()
            if self._has_news and (event := self._collect()) is not None:
                return event
            await self._news.wait()  # what comes from here on is announced, and sets it again
        return None

    @property
    def _has_news(self) -> bool:
        return bool(self._pending) or self._error is not None

    def _collect(self) -> StreamEvent | None:
        with Uninterrupted(), self._lock:
            self._is_announced = False
            events, self._pending = self._pending, []
        if events:
            return StreamEvent.joined(events)
        if self._error is not None:
            raise self._error
        return None

    def _is_to_be_announced(self) -> bool:
        with Uninterrupted(), self._lock:
            is_news = self._has_news and not self._is_announced
            self._is_announced |= is_news
            return is_news

    def _wake(self) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._news.set)


def deliver(mailboxes: Sequence[Mailbox]) -> set[Mailbox]:
    """Wake whoever reads them, each loop once: a wake-up costs as much as an event. Returns those
    that nobody can read any more."""
    unreachable = set()
    for loop, found in _by_loop(mailboxes).items():
        news = [mailbox._news for mailbox in found if mailbox._is_to_be_announced()]
        try:
            if news:
                loop.call_soon_threadsafe(_set_all, news)
            elif loop.is_closed():
                unreachable.update(found)
        except RuntimeError:  # the loop is closed
            unreachable.update(found)
    return unreachable


def _by_loop(mailboxes: Sequence[Mailbox]) -> dict[asyncio.AbstractEventLoop, list[Mailbox]]:
    found: dict[asyncio.AbstractEventLoop, list[Mailbox]] = {}
    for mailbox in mailboxes:
        found.setdefault(mailbox._loop, []).append(mailbox)
    return found


def _set_all(news: Sequence[asyncio.Event]) -> None:
    for one in news:
        one.set()
