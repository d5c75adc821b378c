"""Open-loop load on an OpenAI-compatible server.

Arrivals are a Poisson process and do not wait for answers, so a server that falls behind shows
longer times, not fewer requests.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from random import Random
from threading import Thread
from typing import Any, Final
from urllib.parse import urlsplit

import numpy as np

from forerun.errors import InvalidOption

_TIMEOUT: Final = 600.0
_QUANTILES: Final = (50, 95)


@dataclass(frozen=True)
class Answered:
    """One request, with times in seconds from its arrival, or an `error`."""

    arrival_s: float
    first_token_s: float | None
    last_token_s: float | None
    num_tokens: int
    error: str | None = None


def arrivals(num: int, per_second: float, random: Random) -> list[float]:
    """Return the arrival times of a Poisson process, the first at 0."""
    moments = [0.0]
    for _ in range(num - 1):
        moments.append(moments[-1] + random.expovariate(per_second))
    return moments


def run_load(
    url: str, bodies: Sequence[dict[str, Any]], moments: Sequence[float]
) -> list[Answered]:
    """Send each body at its moment and read its stream; returns when all have ended."""
    _connect(url)  # rejects a bad URL before anything is sent
    found: list[Answered | None] = [None] * len(bodies)
    began = time.perf_counter()

    def send(idx: int) -> None:
        found[idx] = _answer(url, bodies[idx], moments[idx])

    threads = [Thread(target=send, args=(idx,), daemon=True) for idx in range(len(bodies))]
    for thread, moment in zip(threads, moments, strict=True):
        time.sleep(max(0.0, began + moment - time.perf_counter()))
        thread.start()
    for thread in threads:
        thread.join()
    return [one for one in found if one is not None]


def _answer(url: str, body: dict[str, Any], arrival: float) -> Answered:
    began = time.perf_counter()
    connection = _connect(url)
    first = None
    num_tokens = 0
    try:
        content = {**body, "stream": True, "stream_options": {"include_usage": True}}
        headers = {"Content-Type": "application/json"}
        connection.request("POST", "/v1/chat/completions", json.dumps(content), headers)
        response = connection.getresponse()
        if response.status != 200:
            return Answered(arrival, None, None, 0, f"{response.status}")
        for line in response:
            if not line.startswith(b"data: {"):
                continue
            chunk = json.loads(line[6:])
            if first is None and any(_is_said(c["delta"]) for c in chunk.get("choices", ())):
                first = time.perf_counter() - began
            if chunk.get("usage"):
                num_tokens = chunk["usage"]["completion_tokens"]
            if "error" in chunk:
                return Answered(arrival, first, None, num_tokens, str(chunk["error"]))
    except (OSError, http.client.HTTPException, ValueError) as error:
        return Answered(arrival, first, None, num_tokens, type(error).__name__)
    finally:
        connection.close()
    return Answered(arrival, first, time.perf_counter() - began, num_tokens)


def _is_said(delta: Mapping[str, Any]) -> bool:
    return any(delta.get(name) for name in ("content", "reasoning_content"))


def _connect(url: str) -> http.client.HTTPConnection:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidOption(f"{url!r} is no address; write it like http://127.0.0.1:8000.")
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    return kind(parts.hostname, parts.port, timeout=_TIMEOUT)


def load_report(answers: Sequence[Answered]) -> dict[str, Any]:
    """Return the report; rates are over the time from the first arrival to the last token."""
    good = [one for one in answers if one.last_token_s is not None]
    ends = [one.arrival_s + (one.last_token_s or 0.0) for one in good]
    seconds = max(ends, default=0.0)
    num_tokens = sum(one.num_tokens for one in good)
    return {
        "num_requests": len(answers),
        "num_errors": len(answers) - len(good),
        "requests_per_second": len(good) / seconds if seconds else None,
        "tokens_per_second": num_tokens / seconds if seconds else None,
        "first_token_s": _quantiles([one.first_token_s for one in good if one.first_token_s]),
        "last_token_s": _quantiles([one.last_token_s for one in good if one.last_token_s]),
        "answers": [asdict(one) for one in answers],
    }


def _quantiles(values: Sequence[float]) -> dict[str, float | None]:
    if not values:
        return {f"p{q}": None for q in _QUANTILES}
    return {f"p{q}": float(np.percentile(values, q)) for q in _QUANTILES}
