"""Server-sent events, and answers that end when their reader leaves."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable
from contextvars import ContextVar
from typing import Any, Final, TypeVar

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from forerun.server.answers.form import Chunked
from forerun.server.answers.group import Group
from forerun.server.errors import ApiError, as_api_error

_LOG: Final = logging.getLogger("forerun.server")
DONE: Final = b"data: [DONE]\n\n"
REQUEST_ID: Final = ContextVar("request id", default="-")  # of the request that is being answered
Result = TypeVar("Result")


_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def to_json(value: Any) -> bytes:
    return _ENCODER.encode(value).encode()


class JsonAnswer(Response):
    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return to_json(content)


class EventStream(StreamingResponse):
    """Cut off when the reader takes far longer than the request may."""

    def __init__(self, events: AsyncIterator[bytes], timeout_s: float) -> None:
        # nginx would hold events back until it has some kilobytes of them.
        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        super().__init__(events, media_type="text/event-stream", headers=headers)
        self._timeout_s = timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                await super().__call__(scope, receive, send)
        except TimeoutError:  # the rest is not sent, so the connection is closed
            _LOG.warning("request %s: its reader was too slow and is cut off", REQUEST_ID.get())


async def data_events(group: Group, form: Chunked) -> AsyncIterator[bytes]:
    """`data:` lines of a form's chunks. An error on the way is one too: the head is sent."""
    try:
        async for delta in group.deltas():
            for chunk in form.chunks(delta, group):
                yield b"data: " + to_json(chunk) + b"\n\n"
        for chunk in form.closing(group):
            yield b"data: " + to_json(chunk) + b"\n\n"
    except Exception as error:
        yield b"data: " + to_json(explained(error).body) + b"\n\n"
    finally:
        group.close()
    yield DONE


def explained(error: Exception) -> ApiError:
    """For the client; what is our fault is logged."""
    told = as_api_error(error)
    if told.status == 500:
        _LOG.error("request %s failed", REQUEST_ID.get(), exc_info=error)
    return told


async def unless_left(request: Request, work: Awaitable[Result]) -> Result:
    """The result, unless the client leaves before it is there: then the work is cancelled."""
    task = asyncio.ensure_future(work)
    watch = asyncio.create_task(_left(request))
    try:
        await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ApiError(499, "the client left before the answer was there.", "left")
        return await task
    finally:
        for one in (task, watch):
            one.cancel()


async def _left(request: Request) -> None:
    """The body has been read, so the next message says that the client is gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
