"""Server-sent events, and answers that are cancelled when their client disconnects."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Final, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from forerun.server.answers.delta import Delta
from forerun.server.answers.form import ChunkForm
from forerun.server.errors import ApiError, as_api_error
from forerun.server.json_text import to_json
from forerun.server.operation.protocol import Direct, Pings

Result = TypeVar("Result")

_LOG: Final = logging.getLogger("forerun.server")
DONE: Final = b"data: [DONE]\n\n"
COMMENT: Final = b": waiting\n\n"  # clients ignore it
REQUEST_ID: Final = ContextVar("request id", default="-")  # of the request that is being answered
_HEARD_OUT: Final = 10.0  # seconds that a body is still read after its error was sent
MANY_LOGPROBS: Final = 256  # more are written off the event loop: with 20 tokens each, 0.1 s
DIRECT: Final = "forerun.direct"  # key of the scope's `Direct`, by which streams are sent


class JsonAnswer(Response):
    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return to_json(content)


class LastWords(JsonAnswer):
    """An error to a client that still sends: the error goes out at once, then the body is read and
    dropped for a while."""

    def __init__(
        self, content: Any, status: int, headers: dict[str, str], num_dropped_bytes: int
    ) -> None:
        super().__init__(content, status, headers)
        self._num_bytes = num_dropped_bytes

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        head = {"status": self.status_code, "headers": self.raw_headers}
        await send({"type": "http.response.start", **head})
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        with suppress(TimeoutError):
            async with asyncio.timeout(_HEARD_OUT):
                while self._num_bytes > 0 and (message := await receive()).get("more_body"):
                    self._num_bytes -= len(message["body"])
        await send({"type": "http.response.body"})


class EventStream(Response):
    """A stream of events. It ends when its client disconnects, and is cut off if sending it takes
    far longer than the request may.

    Only its head passes through all layers of the application. Events are sent directly, as each
    layer would cost as much as the event itself.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        events: AsyncIterator[bytes],
        leave: Callable[[], None],
        timeout_s: float,
        ping: bytes = COMMENT,
        ping_interval_s: float = 0.0,
    ) -> None:
        # Otherwise nginx buffers events until it has some kilobytes.
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._events = events
        self._leave = leave
        self._timeout_s = timeout_s
        self._ping, self._ping_interval_s = ping, ping_interval_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        head = {"status": self.status_code, "headers": self.raw_headers}
        try:
            with left_by(receive, self._leave):
                async with asyncio.timeout(self._timeout_s):
                    await send({"type": "http.response.start", **head})
                    # A task of its own: events then resume none of the frames that led here.
                    await asyncio.create_task(self._send_all(scope[DIRECT]))
        except TimeoutError:  # the rest is not sent, so the connection is closed
            _LOG.warning("request %s: its reader was too slow and is cut off", REQUEST_ID.get())

    async def _send_all(self, direct: Direct) -> None:
        pings = Pings(direct, self._ping, self._ping_interval_s)
        try:
            async for part in self._events:
                await direct.send({"type": "http.response.body", "body": part, "more_body": True})
        finally:
            pings.stop()
        await direct.send({"type": "http.response.body"})


async def data_events(form: ChunkForm, direct: Direct) -> AsyncIterator[bytes]:
    """Yield a form's chunks as `data:` lines.

    While the reader keeps up, chunks are written as they come instead of being yielded. An error
    becomes an event as well, since the head was sent."""

    def take(deltas: list[Delta]) -> bool:
        if not direct.keeps_up or form.num_logprobs(deltas) > MANY_LOGPROBS:
            return False
        direct.write(form.chunks(deltas))
        return True

    try:
        async for deltas in form.group.news(take):
            is_long = form.num_logprobs(deltas) > MANY_LOGPROBS
            if part := await made(form.chunks, deltas, is_long=is_long):
                yield part
        last = form.closing()
    except Exception as error:
        last = b"data: " + to_json(explained(error).body) + b"\n\n"
    yield last + DONE


async def made(make: Callable[..., Result], *args: Any, is_long: bool) -> Result:
    """Return `make(*args)`, from a worker thread if it `is_long`, so that no stream waits."""
    return await asyncio.to_thread(make, *args) if is_long else make(*args)


def explained(error: Exception) -> ApiError:
    """Return the error for the client; log it if the server is at fault."""
    told = as_api_error(error)
    if told.status == 500:
        _LOG.error("request %s failed", REQUEST_ID.get(), exc_info=error)
    return told


@contextmanager
def left_by(receive: Receive, leave: Callable[[], None]) -> Iterator[None]:
    """Call `leave` when the client disconnects, and at the end."""
    watch = asyncio.create_task(_left(receive, leave))
    try:
        yield
    finally:
        watch.cancel()
        leave()


async def _left(receive: Receive, leave: Callable[[], None]) -> None:
    """Wait for the client to disconnect: the body has been read, so no other message follows."""
    while (await receive())["type"] != "http.disconnect":
        pass
    leave()
