"""Answers over HTTP, read as cheaply as can be: client and server share the machine."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from forerun.errors import ForerunError

Body = dict[str, Any]
_PATH = "/v1/chat/completions"


class BadReply(ForerunError):
    """A server refused what a bench asked."""


@dataclass(frozen=True)
class Reply:
    """`first_s` is when its first bytes came, and `seconds` when all had."""

    first_s: float
    seconds: float
    raw: bytes

    @property
    def num_chunks(self) -> int:
        """Of a stream, without its last words."""
        return self.raw.count(b"data: {")

    @property
    def text(self) -> str:
        if not self.raw.startswith(b"data: "):
            return str(self.answer["choices"][0]["message"]["content"])
        lines = [line[6:] for line in self.raw.split(b"\n") if line.startswith(b"data: {")]
        deltas = [json.loads(line)["choices"][0]["delta"] for line in lines]
        return "".join(delta.get("content") or "" for delta in deltas)

    @property
    def answer(self) -> dict[str, Any]:
        """Of one that is no stream."""
        found: dict[str, Any] = json.loads(self.raw)
        return found


def ask(url: str, body: Body) -> Reply:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port)
    content = json.dumps(body)
    began = time.perf_counter()
    try:
        connection.request("POST", _PATH, content, {"Content-Type": "application/json"})
        response = connection.getresponse()
        parts_read = [response.read1()]
        first = time.perf_counter() - began
        while parts_read[-1]:
            parts_read.append(response.read1())
        seconds = time.perf_counter() - began
    finally:
        connection.close()
    raw = b"".join(parts_read)
    if response.status != 200:
        raise BadReply(f"{url} answered {response.status}: {raw[:300].decode(errors='replace')}")
    return Reply(first, seconds, raw)


def ask_all(url: str, bodies: Sequence[Body]) -> tuple[float, list[Reply]]:
    """All at once; the seconds until the last one is answered."""
    with ThreadPoolExecutor(len(bodies)) as pool:
        began = time.perf_counter()
        replies = list(pool.map(lambda body: ask(url, body), bodies))
        return time.perf_counter() - began, replies
