"""HTTP as uvicorn speaks it, by clients that say in time what they want."""

from __future__ import annotations

from asyncio import TimerHandle, Transport, get_running_loop
from time import monotonic

import h11
from starlette.types import Message, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle


class Direct:
    """The way of a long body's parts: one that comes while its reader keeps up is framed here and
    written at once, for a fraction of what uvicorn and h11 take to look at it again."""

    def __init__(self, scope: Scope, send: Send) -> None:
        cycle = getattr(send, "__self__", None)
        has_body = scope["method"] != "HEAD"
        self._cycle = cycle if isinstance(cycle, RequestResponseCycle) and has_body else None
        self._is_chunked = scope["http_version"] == "1.1"  # 1.0 ends a body with the connection
        self._send = send
        self.last = 0.0  # when it was written to, on the clock of event loops

    @property
    def keeps_up(self) -> bool:
        """The reader, so that parts may be written."""
        cycle = self._cycle
        return cycle is not None and not (cycle.flow.write_paused or cycle.disconnected)

    def write(self, part: bytes) -> None:
        assert self._cycle is not None
        self.last = monotonic()
        if part:  # an empty chunk would be the last
            framed = b"%x\r\n%b\r\n" % (len(part), part) if self._is_chunked else part
            self._cycle.transport.write(framed)

    async def send(self, message: Message) -> None:
        if message.get("more_body", False) and self.keeps_up:
            self.write(message["body"])
        else:
            await self._send(message)


class Pings:
    """Written where nothing else was for so many `seconds`, until they are stopped: clients and
    proxies give up on who is silent, and a long prompt takes minutes. 0: none at all."""

    def __init__(self, direct: Direct, ping: bytes, seconds: float) -> None:
        self._direct, self._ping, self._seconds = direct, ping, seconds
        self._handle: TimerHandle | None = None
        if seconds:
            direct.last = monotonic()
            self._wait()

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()

    def _wait(self) -> None:
        due = self._direct.last + self._seconds
        self._handle = get_running_loop().call_at(due, self._look)

    def _look(self) -> None:
        if monotonic() < self._direct.last + self._seconds:
            self._wait()
            return
        if self._direct.keeps_up:
            self._direct.write(self._ping)
        self._direct.last = monotonic()
        self._wait()


def timed_protocol(seconds: float) -> type[H11Protocol]:
    """h11's, since it bounds the length of a request's head; this bounds its time as well.

    uvicorn itself times a connection only between two requests.
    """

    class TimedProtocol(H11Protocol):
        _head: TimerHandle | None = None  # while one is to come

        def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._time_head()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._time_head()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop()
            super().connection_lost(exc)

        def _time_head(self) -> None:
            if self.conn.their_state is not h11.IDLE:
                self._stop()
            elif self._head is None:
                self._head = self.loop.call_later(seconds, self._give_up)

        def _stop(self) -> None:
            if self._head is not None:
                self._head.cancel()
                self._head = None

        def _give_up(self) -> None:
            self._head = None
            if not self.transport.is_closing():
                self.transport.close()

    return TimedProtocol
