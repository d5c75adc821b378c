"""Pings on silent streams: clients and proxies give up on a connection that stays silent."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import openai as typed_openai
import pytest

from forerun.bench.serve.replies import ask
from forerun.errors import InvalidOption
from forerun.server.operation.config import Limits, ServerConfig
from forerun.server.operation.protocol import Pings
from tests.server.serving import MODEL, Running, serving

openai: Any = typed_openai  # its overloads know only OpenAI's models
CHAT: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "a"}], "seed": 1}
LONG: dict[str, Any] = {"prompt": "abc", "max_tokens": 200, "ignore_eos": True, "stream": True}
SHORT: dict[str, Any] = {**CHAT, "max_tokens": 4, "stream": True}


class Wire:
    """A connection that takes all writes, or none unless it `keeps_up`."""

    def __init__(self, *, keeps_up: bool = True) -> None:
        self.last, self.keeps_up, self.parts = 0.0, keeps_up, list[bytes]()

    def write(self, part: bytes) -> None:
        self.parts.append(part)


async def pinged(wire: Wire, seconds: float, rest: float) -> None:
    direct: Any = wire
    pings = Pings(direct, b"ping", seconds)
    await asyncio.sleep(rest)
    pings.stop()
    num = len(wire.parts)
    await asyncio.sleep(2 * seconds + 0.01)
    assert len(wire.parts) == num, "nothing comes behind the end"


def test_silence_is_broken_until_the_end() -> None:
    wire = Wire()
    asyncio.run(pinged(wire, 0.01, 0.5))
    assert set(wire.parts) == {b"ping"}
    assert len(wire.parts) > 3


def test_who_does_not_read_is_not_pinged_and_zero_means_never() -> None:
    deaf, quiet = Wire(keeps_up=False), Wire()
    asyncio.run(pinged(deaf, 0.01, 0.1))
    asyncio.run(pinged(quiet, 0.0, 0.1))
    assert deaf.parts == quiet.parts == []


def test_where_something_comes_in_time_there_is_no_ping() -> None:
    wire = Wire()

    async def main() -> None:
        direct: Any = wire
        pings = Pings(direct, b"ping", 30.0)
        loop = asyncio.get_running_loop()
        for _ in range(5):
            wire.last = loop.time()
            pings._look()
        pings.stop()

    asyncio.run(main())
    assert wire.parts == []


def test_a_ping_is_no_first_token_for_the_bench(server: Running) -> None:
    """The time to the first token begins with the answer, and the text has no comments in it."""
    with busy(server):
        waited = ask(server.url, {**SHORT, "max_tokens": 30})
    alone = ask(server.url, {**SHORT, "max_tokens": 30})
    assert waited.raw.startswith(b": waiting")
    assert waited.text == alone.text
    num_pings = waited.raw.split(b"data: ", 1)[0].count(b": waiting")
    assert waited.first_s > 0.01 * (num_pings - 1) > 0


def test_a_connection_that_is_kept_gets_no_ping_behind_the_answer(server: Running) -> None:
    """A ping after the answer would be read as the start of the next answer."""
    address = urlsplit(server.url)
    connection = HTTPConnection(address.hostname or "", address.port)
    for _ in range(2):
        connection.request("POST", "/v1/chat/completions", json.dumps(SHORT))
        response = connection.getresponse()
        assert response.read().endswith(b"data: [DONE]\n\n")
        time.sleep(0.1)  # ten pings
    assert connection.sock is not None, "the server kept the connection"
    connection.close()


def test_clients_of_an_older_http_hear_it_too(server: Running) -> None:
    """HTTP/1.0 has no chunks: the body is all that comes until the connection ends."""
    address, body = urlsplit(server.url), json.dumps(SHORT).encode()
    head = f"POST /v1/chat/completions HTTP/1.0\r\nContent-Length: {len(body)}\r\n\r\n"
    with busy(server), socket.create_connection((address.hostname, address.port)) as connection:
        connection.sendall(head.encode() + body)
        found = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    said = found.split(b"\r\n\r\n", 1)[1]
    assert said.count(b": waiting\n\n") > 1
    lines = [line for line in said.split(b"\n\n") if line and line != b": waiting"]
    assert lines[-1] == b"data: [DONE]"
    assert all(json.loads(line.removeprefix(b"data: "))["choices"] for line in lines[:-1])


@pytest.mark.parametrize("seconds", [-1.0, float("inf"), float("nan")])
def test_intervals_that_are_none(seconds: float) -> None:
    with pytest.raises(InvalidOption, match="--sse-ping-interval"):
        ServerConfig(("a",), limits=Limits(sse_ping_interval_s=seconds))


@pytest.fixture(scope="module")
def server(tiny_path: Path) -> Iterator[Running]:
    options = ("--kernels", "reference", "--max-num-seqs", "1", "--sse-ping-interval", "0.01")
    with serving(tiny_path, *options, "--no-speculation") as running:
        yield running


@contextmanager
def busy(server: Running) -> Iterator[None]:
    """Keep the server busy, so that further requests have to wait."""
    with server.client.stream("POST", "/v1/completions", json=LONG) as stream:
        pieces = stream.iter_bytes()
        next(pieces)
        yield


def test_who_waits_for_a_turn_hears_that_the_server_lives(server: Running) -> None:
    """OpenAI's clients get comments, Anthropic's get events; both still get their answers."""
    messages = {name: CHAT[name] for name in ("model", "messages")}
    asking = server.client.stream("POST", "/v1/chat/completions", json=SHORT)
    with busy(server), asking as stream:
        lines = list(stream.iter_lines())
    assert ": waiting" in lines
    assert lines[-2] == "data: [DONE]"
    with busy(server):
        events = server.stream("/v1/messages", **messages, max_tokens=4)
    kinds = [json.loads(event)["type"] for event in events]
    assert kinds.count("ping") > 1
    assert kinds[-1] == "message_stop"


def test_clients_pass_over_them(server: Running) -> None:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0) as client:
        whole = client.chat.completions.create(**CHAT, max_tokens=30)
        with busy(server):
            chunks = list(client.chat.completions.create(**CHAT, max_tokens=30, stream=True))
    told = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert told == whole.choices[0].message.content
