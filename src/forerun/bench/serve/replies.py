"""HTTP requests whose answers are read cheaply, as client and server share the machine."""

from __future__ import annotations

import http.client
import io
import json
import selectors
import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

from forerun.errors import ForerunError

Body = dict[str, Any]
_PATH = "/v1/chat/completions"


class BadReply(ForerunError):
    """A server rejected a request of a bench, or broke off its answer."""


@dataclass(frozen=True)
class Reply:
    """`first_s` is when the first bytes of the answer came, `seconds` when all had come."""

    first_s: float
    seconds: float
    raw: bytes

    @property
    def num_chunks(self) -> int:
        """The number of chunks of a stream, without its final `[DONE]`."""
        return self.raw.count(b"data: {")

    @property
    def text(self) -> str:
        if self.raw.startswith(b"{"):
            return str(self.answer["choices"][0]["message"]["content"])
        lines = [line[6:] for line in self.raw.split(b"\n") if line.startswith(b"data: {")]
        deltas = [json.loads(line)["choices"][0]["delta"] for line in lines]
        return "".join(delta.get("content") or "" for delta in deltas)

    @property
    def answer(self) -> dict[str, Any]:
        """The body of a reply that is not a stream."""
        found: dict[str, Any] = json.loads(self.raw)
        return found


def ask(url: str, body: Body) -> Reply:
    (reply,) = ask_all(url, [body])[1]
    return reply


def ask_all(url: str, bodies: Sequence[Body], pause_s: float = 0.0) -> tuple[float, list[Reply]]:
    """Send all requests at once, by one thread; return the seconds until all are answered. A pause
    after each read keeps the client from waking, and taking a core, for every chunk."""
    parts = urlsplit(url)
    address = str(parts.hostname), parts.port or 80
    contents = [_request(parts.netloc, body) for body in bodies]
    began = time.perf_counter()
    with ExitStack() as stack:
        selector, readers = stack.enter_context(selectors.DefaultSelector()), list[_Reader]()
        for content in contents:
            connection = stack.enter_context(socket.create_connection(address))
            connection.sendall(content)
            readers.append(_Reader(connection))
            selector.register(connection, selectors.EVENT_READ, readers[-1])
        while selector.get_map():
            for key, _ in selector.select():
                if not key.data.read(time.perf_counter() - began):
                    selector.unregister(key.fileobj)
            time.sleep(pause_s)
    return time.perf_counter() - began, [reader.reply(url) for reader in readers]


def _request(host: str, body: Body) -> bytes:
    """Return a request that closes the connection, so that its end marks that of the answer."""
    content = json.dumps(body).encode()
    lines = (
        f"POST {_PATH} HTTP/1.1",
        f"Host: {host}",
        "Connection: close",
        "Content-Type: application/json",
        f"Content-Length: {len(content)}",
    )
    return "\r\n".join((*lines, "", "")).encode() + content


class _Reader:
    """One connection; its bytes are parsed only when all have come."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._parts: list[bytes] = []
        self._moments: list[float] = []

    def read(self, moment: float) -> bool:
        """Read what has come; return whether more may come."""
        part = self._socket.recv(1 << 16)
        self._parts.append(part)
        self._moments.append(moment)
        return bool(part)

    def reply(self, url: str) -> Reply:
        heard = cast(socket.socket, _Heard(b"".join(self._parts)))
        response = http.client.HTTPResponse(heard)
        try:
            response.begin()
            raw = response.read()
        except http.client.HTTPException as error:
            raise BadReply(f"{url} ended before its answer did ({error!r}).") from None
        if response.status != 200:
            said = raw[:300].decode(errors="replace")
            raise BadReply(f"{url} answered {response.status}: {said}")
        # The head may come in a part of its own, and so may comments that keep a stream alive.
        begins = b"{" if raw.startswith(b"{") else b"data: "
        first = next((at for at, part in enumerate(self._parts) if begins in part), -1)
        return Reply(self._moments[first], self._moments[-1], raw)


class _Heard:
    """The part of a socket that http.client needs: a file to read from."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def makefile(self, *_: object) -> io.BytesIO:
        return io.BytesIO(self._content)
