"""llama.cpp through xllamacpp: plain decoding, and each of its n-gram kinds of speculation."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from worker import Answer, Handler, serve  # type: ignore[import-not-found]

PREFIX = "COMMON_SPECULATIVE_TYPE_"


def start(setup: dict[str, Any]) -> tuple[Answer, Handler]:
    library = importlib.import_module("xllamacpp")
    servers: dict[str, Any] = {}
    about = {
        "versions": {"xllamacpp": importlib.metadata.version("xllamacpp")},
        "precision": "the GGUF's own weights, activations quantised to 8 bits, float16 cache",
        "modes": _modes(library),
    }

    def answer(question: dict[str, Any]) -> Answer:
        mode = question["mode"]
        if mode not in servers:  # a server has one kind of speculation for life
            servers[mode] = _server(library, setup, mode)
        address = servers[mode].listening_address
        if "prompts" in question:
            return _complete_all(address, question, setup["slots"])
        return _complete(address, question)

    return about, answer


def _modes(library: Any) -> list[str]:
    """Plain, and every n-gram kind this version names."""
    kinds = [name for name in dir(library.common_speculative_type) if name.startswith(PREFIX)]
    ngrams = [name.removeprefix(PREFIX).lower() for name in kinds if "NGRAM" in name]
    return ["plain", *ngrams]


def _server(library: Any, setup: dict[str, Any], mode: str) -> Any:
    params = library.CommonParams()
    params.model.path = setup["model"]
    params.n_ctx = setup["max_len"] * setup["slots"]  # shared out among the slots
    params.n_parallel = setup["slots"]
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = setup["threads"]
    params.verbosity = -1
    params.port = 0  # any that is free
    if mode != "plain":
        kind = getattr(library.common_speculative_type, PREFIX + mode.upper())
        params.speculative.types = [kind]
    return library.Server(params)


def _complete(address: str, question: dict[str, Any]) -> Answer:
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


def _complete_all(address: str, question: dict[str, Any], num_slots: int) -> Answer:
    """Every slot busy, and always a request that waits for the next free one."""
    pairs = zip(question["prompts"], question["num_tokens"], strict=True)
    questions = [{"prompt": prompt, "num_tokens": num} for prompt, num in pairs]
    began = time.perf_counter()
    with ThreadPoolExecutor(num_slots + 1) as pool:
        answers = list(pool.map(lambda one: _complete(address, one), questions))
    seconds = time.perf_counter() - began
    return {"tokens": [answer["tokens"] for answer in answers], "seconds": seconds}


def _events(url: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Server-sent events, as they come."""
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request) as reply:
        for line in reply:
            if line.startswith(b"data: {"):
                yield json.loads(line[6:])


if __name__ == "__main__":
    serve(start)
