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
    never holds more than the answer itself. With `whole` it is woken for the first event, the last
    one and an error alone, and what comes between joins the last.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, *, whole: bool = False) -> None:
        self._loop = loop
        self._waits_for_all = False  # the first has come, the last has not, and nobody wants less
        self._is_whole = whole
        self._lock = Lock()
        self._news = asyncio.Event()
        self._is_announced = False
        self._is_due = False  # what it holds is worth waking its reader
        self._is_closed = False
        self._pending: list[StreamEvent] = []  # joined when they are read: in time that is linear
        self._error: Exception | None = None

    def put(self, event: StreamEvent) -> None:
        """From the engine's thread; `deliver` says that it is there."""
        with Uninterrupted(), self._lock:
            self._pending.append(event)
            self._is_due |= not self._waits_for_all or event.output is not None
            self._waits_for_all = self._is_whole

    def fail(self, error: Exception) -> None:
        """No more events will come; `error` is raised once those that came are read."""
        with Uninterrupted(), self._lock:
            self._error = self._error or error
            self._is_due = True
        deliver([self])

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
            if not self._is_due and self._error is None:
                return None
            self._is_announced = self._is_due = False
            events, self._pending = self._pending, []
        if events:
            return StreamEvent.joined(events)
        if self._error is not None:
            raise self._error
        return None

    def _is_to_be_announced(self) -> bool:
        with Uninterrupted(), self._lock:
            is_news = self._is_due and not self._is_announced
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
