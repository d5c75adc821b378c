"""How a request's body is read on its way to the engine."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from threading import Event, current_thread
from typing import Any

import httpx
import pytest

from forerun.engine import LLM, AsyncEngine
from forerun.engine.api.input_processor import InputProcessor
from forerun.models.text.tokenizer import Tokenizer
from forerun.server import streaming
from forerun.server.answers import logprobs
from forerun.server.app import build_app
from forerun.server.operation.access_log import AccessLog
from forerun.server.operation.auth import Keys
from forerun.server.operation.config import Limits
from forerun.server.operation.counters import Counters
from forerun.server.question import answer_len
from forerun.server.routes import asked
from forerun.server.service import Service
from forerun.types import SamplingParams

PARAMS = SamplingParams(max_tokens=4, seed=0, ignore_eos=True)
MESSAGES = [{"role": "user", "content": "abc"}]
BODIES: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": "abc", "max_tokens": 1},
    "/v1/chat/completions": {
        "messages": MESSAGES,
        "prediction": {"type": "content", "content": "abc"},
        "max_tokens": 1,
    },
    "/v1/responses": {"input": "abc", "max_output_tokens": 1},
    "/v1/responses/input_tokens": {"input": "abc"},
    "/v1/messages": {"messages": MESSAGES, "max_tokens": 1},
    "/v1/messages/count_tokens": {"messages": MESSAGES},
    "/tokenize": {"prompt": "abc"},
    "/detokenize": {"tokens": [1, 2]},
}


@asynccontextmanager
async def asking(llm: LLM) -> AsyncIterator[httpx.AsyncClient]:
    async with AsyncEngine(llm) as engine:
        service = Service(("tiny",), Limits(), Counters(lambda: None))
        service.start(engine, "reference")
        app = build_app(service, Keys(()), AccessLog(None))
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            yield client
        service.close()


def test_bodies_are_read_beside_the_event_loop(
    tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A body of megabytes takes seconds to read: on the event loop it would stall all streams."""
    llm = LLM(tiny_path, kernels="reference")
    threads: dict[str, set[str]] = {}

    def note(owner: Any, name: str) -> None:
        run: Callable[..., Any] = getattr(owner, name)

        def noted(*args: Any, **options: Any) -> Any:
            threads.setdefault(name, set()).add(current_thread().name)
            return run(*args, **options)

        monkeypatch.setattr(owner, name, noted)

    for owner, name in (
        (asked, "parse_json"),
        (asked, "read_fields"),
        (Tokenizer, "encode"),
        (Tokenizer, "decode"),
        (Tokenizer, "apply_chat_template"),
        (InputProcessor, "requests"),
    ):
        note(owner, name)

    async def body() -> list[int]:
        async with asking(llm) as client:
            return [(await client.post(p, json=one)).status_code for p, one in BODIES.items()]

    assert asyncio.run(body()) == [200] * len(BODIES)
    assert len(threads) == 6
    assert all(name.startswith("forerun-short") for names in threads.values() for name in names)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": "abc", "max_tokens": 2, "logprobs": 2, "echo": True}),
        (
            "/v1/completions",
            {"prompt": "a" * 200, "max_tokens": 1, "logprobs": 1, "echo": True, "stream": True},
        ),
        ("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 2, "logprobs": True}),
        (
            "/v1/responses",
            {
                "input": "abc",
                "max_output_tokens": 2,
                "top_logprobs": 2,
                "include": ["message.output_text.logprobs"],
            },
        ),
    ],
)
def test_many_chances_are_written_beside_the_event_loop(
    tiny_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any]
) -> None:
    """Log-probabilities of a long text are megabytes; no stream waits while they are written."""
    llm = LLM(tiny_path, kernels="reference")
    monkeypatch.setattr(streaming, "MANY_LOGPROBS", 100)
    names = set()

    def noted(*args: Any, write: Any = logprobs.spelled, **options: Any) -> Any:
        names.add(current_thread().name)
        return write(*args, **options)

    monkeypatch.setattr(logprobs, "spelled", noted)
    monkeypatch.setattr(logprobs, "_name", partial(noted, write=logprobs._name))

    async def ask() -> int:
        async with asking(llm) as client:
            return (await client.post(path, json=body)).status_code

    assert asyncio.run(ask()) == 200
    assert names
    assert current_thread().name not in names


def test_the_time_to_a_first_token_begins_with_the_request(
    tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time to read the prompt counts."""
    llm = LLM(tiny_path, kernels="reference")

    def slow(self: Tokenizer, text: str, *, encode: Any = Tokenizer.encode, **more: Any) -> Any:
        time.sleep(0.2)
        return encode(self, text, **more)

    monkeypatch.setattr(Tokenizer, "encode", slow)

    async def body() -> str:
        async with asking(llm) as client:
            await client.post("/v1/completions", json=BODIES["/v1/completions"])
            return (await client.get("/metrics")).text

    (line,) = re.findall(r"forerun:time_to_first_token_seconds_sum (\S+)", asyncio.run(body()))
    assert float(line) > 0.2


def test_nobody_waits_for_a_body_that_is_much_longer(
    tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A short body is answered while a long one is still being encoded."""
    llm, begun, answered = LLM(tiny_path, kernels="reference"), Event(), Event()
    long = "a" * 65_530

    def held(self: Tokenizer, text: str, *, encode: Any = Tokenizer.encode, **more: Any) -> Any:
        if text == long:
            begun.set()
            assert answered.wait(60)
        return encode(self, text, **more)

    monkeypatch.setattr(Tokenizer, "encode", held)

    async def body() -> tuple[int, int]:
        async with asking(llm) as client:
            slow = asyncio.create_task(client.post("/tokenize", json={"prompt": long}))
            await asyncio.to_thread(begun.wait)
            short = await client.post("/tokenize", json={"prompt": "abc"})
            answered.set()
            return (await slow).json()["count"], short.json()["count"]

    assert asyncio.run(body()) == (65_530, 3)


def note_encoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record all texts that tokenizers encode from here on."""
    encoded: list[str] = []

    def noted(self: Tokenizer, text: str, *, encode: Any = Tokenizer.encode, **more: Any) -> Any:
        encoded.append(text)
        return encode(self, text, **more)

    monkeypatch.setattr(Tokenizer, "encode", noted)
    return encoded


def test_parts_are_lines_of_a_message_and_pieces_of_a_prediction(
    tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm = LLM(tiny_path, kernels="reference")
    encoded = note_encoded(monkeypatch)

    def parts(kind: str) -> list[dict[str, str]]:
        return [{"type": kind, "text": text} for text in ("ab", "c")]

    async def run() -> None:
        async with asking(llm) as client:
            message = {"role": "user", "content": parts("text")}
            prediction = {"type": "content", "content": parts("text")}
            body = {"messages": [message], "prediction": prediction, "max_tokens": 1}
            assert (await client.post("/v1/chat/completions", json=body)).status_code == 200
            assert set(encoded) == {"<|start|>ab\nc<|end|><|start|>", "abc"}
            encoded.clear()
            item = {"role": "user", "content": parts("input_text")}
            body = {"input": [item], "max_output_tokens": 1}
            assert (await client.post("/v1/responses", json=body)).status_code == 200
            assert set(encoded) == {"<|start|>ab\nc<|end|><|start|>"}

    asyncio.run(run())


def test_a_prediction_is_encoded_once_for_all_prompts(
    tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm = LLM(tiny_path, kernels="reference")
    encoded = note_encoded(monkeypatch)
    prompts, predictions = [(1, 2), (3, 4), (5, 6), (7, 8)], ["ab", "ab", "abc", "ab"]
    pairs = zip(prompts, predictions, strict=True)
    alone = [llm.generate([prompt], PARAMS, prediction=text) for prompt, text in pairs]
    encoded.clear()
    together = llm.generate(prompts, PARAMS, prediction=predictions)
    assert encoded == ["abc", "ab"]  # the first two equal the last one before them
    assert [o.outputs[0].token_ids for o in together] == [
        one[0].outputs[0].token_ids for one in alone
    ]


@pytest.mark.parametrize(
    ("wanted", "ceiling", "expected"), [(10, None, 10), (99, None, 60), (99, 30, 30), (10, 30, 10)]
)
def test_lengths_that_may_be_short(wanted: int, ceiling: int | None, expected: int) -> None:
    limits = Limits(max_answer_tokens=ceiling)
    prompt = (1,) * 40
    assert answer_len(wanted, "max_tokens", prompt, 100, limits, may_be_short=True) == expected
