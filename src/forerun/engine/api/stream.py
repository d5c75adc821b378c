"""One streamed answer, as its reader holds it."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress

from forerun.engine.api.events import StreamEvent
from forerun.engine.engine import Engine
from forerun.engine.request.request import Request
from forerun.interrupts import Uninterrupted


class Stream(Iterator[StreamEvent]):
    """Ends with its last event, with an error, with ^C while the next event is waited for, and by
    `close`: then its requests are gone at once. One that is dropped is forsaken.

    There is no finalizer: ^C in one would be printed and forgotten.
    """

    def __init__(
        self,
        events: Generator[StreamEvent, None, None],
        requests: Sequence[Request],
        engine: Engine,
    ) -> None:
        self._events = events
        self._requests = requests
        self._engine = engine
        self._is_closed = False

    def __next__(self) -> StreamEvent:
        try:
            event = next(self._events)
            if self._is_closed:  # by another thread, meanwhile
                raise StopIteration
            return event
        except BaseException:  # also ^C after the event had come: the next would leave a hole
            self.close()
            raise

    def close(self) -> None:
        """Nothing more is wanted. Another thread that waits for the next event comes to the end."""
        self._is_closed = True
        with suppress(ValueError):  # it is there that the generator runs
            self._events.close()
        with Uninterrupted():
            for request in self._requests:
                self._engine.abort(request)
