"""Additions to uvicorn's HTTP: direct writes of streams, pings, and a time limit for heads."""

from __future__ import annotations

from asyncio import TimerHandle, Transport, get_running_loop
from time import monotonic

import h11
from starlette.types import Message, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle


class Direct:
    """Sends the parts of a stream. While the reader keeps up, a part is framed here and written to
    the transport at once, in a fraction of the time that uvicorn and h11 take."""

    def __init__(self, scope: Scope, send: Send) -> None:
        cycle = getattr(send, "__self__", None)
        has_body = scope["method"] != "HEAD"
        self._cycle = cycle if isinstance(cycle, RequestResponseCycle) and has_body else None
        self._is_chunked = scope["http_version"] == "1.1"  # 1.0 ends a body with the connection
        self._send = send
        self.last = 0.0  # when a part was last written, on the event loop's clock

    @property
    def keeps_up(self) -> bool:
        """Whether the reader keeps up, so that `write` may be called."""
        cycle = self._cycle
        return cycle is not None and not (cycle.flow.write_paused or cycle.disconnected)

    def write(self, part: bytes) -> None:
        assert self._cycle is not None
        self.last = monotonic()
        if part:  # an empty chunk would end the body
            framed = b"%x\r\n%b\r\n" % (len(part), part) if self._is_chunked else part
            self._cycle.transport.write(framed)

    async def send(self, message: Message) -> None:
        if message.get("more_body", False) and self.keeps_up:
            self.write(message["body"])
        else:
            await self._send(message)


class Pings:
    """Writes `ping` whenever nothing was written for `seconds`, until stopped; 0: never.

    Clients and proxies give up on silent connections, and a long prompt takes minutes."""

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
    """Return uvicorn's protocol on h11, which limits the length of a request's head, with a limit
    on the time that the head takes, too.

    uvicorn itself limits only the time between two requests of a connection.
    """

    class TimedProtocol(H11Protocol):
        _head: TimerHandle | None = None  # set while a head is awaited

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
