"""The iterator that `LLM.stream` returns."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress

from forerun.engine.api.events import StreamEvent
from forerun.engine.engine import Engine
from forerun.engine.request.request import Request
from forerun.interrupts import Uninterrupted


class Stream(Iterator[StreamEvent]):
    """The events of one answer.

    It ends after the last event, with an error, with ^C in `__next__`, and by `close`; its requests
    are then removed at once. Those of a stream that is dropped are forsaken: there is no finalizer,
    because ^C in a finalizer is printed and lost.
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
            if self._is_closed:  # by another thread in the meantime
                raise StopIteration
            return event
        except BaseException:  # ^C may lose an event, and a later one would then leave a gap
            self.close()
            raise

    def close(self) -> None:
        """End the stream. A thread that waits for the next event reaches the end, too."""
        self._is_closed = True
        with suppress(ValueError):  # the generator is running in another thread
            self._events.close()
        with Uninterrupted():
            for request in self._requests:
                self._engine.abort(request)
