"""Requests to llama.cpp's server, and the times of its tokens; the same for every build."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

Answer = dict[str, Any]


def complete(address: str, question: dict[str, Any]) -> Answer:
    body = {
        "prompt": question["prompt"],
        "n_predict": question["num_tokens"],
        "temperature": 0.0,
        "top_k": 1,
        "ignore_eos": True,
        "cache_prompt": False,
        "return_tokens": True,
        "stream": True,
    }
    if "json_schema" in question:
        body |= {"json_schema": question["json_schema"], "ignore_eos": False}
    began = time.perf_counter()
    tokens: list[int] = []
    arrivals: list[tuple[float, int]] = []
    timings: dict[str, Any] = {}
    for event in _events(f"{address}/completion", body):
        if event.get("tokens"):
            tokens += event["tokens"]
            arrivals.append((time.perf_counter() - began, len(event["tokens"])))
        timings = event.get("timings", timings)
    guesses, accepted = timings.get("draft_n", 0), timings.get("draft_n_accepted", 0)
    return {"tokens": tokens, "arrivals": arrivals, "guesses": guesses, "accepted": accepted}


def complete_all(address: str, question: dict[str, Any], num_slots: int) -> Answer:
    """Answer all prompts with every slot busy, and one request waiting for the next free slot."""
    pairs = zip(question["prompts"], question["num_tokens"], strict=True)
    questions = [{"prompt": prompt, "num_tokens": num} for prompt, num in pairs]
    began = time.perf_counter()
    with ThreadPoolExecutor(num_slots + 1) as pool:
        answers = list(pool.map(lambda one: complete(address, one), questions))
    seconds = time.perf_counter() - began
    return {"tokens": [answer["tokens"] for answer in answers], "seconds": seconds}


def _events(url: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield server-sent events as they come."""
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request) as reply:
        for line in reply:
            if line.startswith(b"data: {"):
                yield json.loads(line[6:])
