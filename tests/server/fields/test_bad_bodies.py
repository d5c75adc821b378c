"""300 generated bad bodies and some hostile ones: each gets a 4xx in its API's error format, and
the server goes on."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from forerun.server.fields import Endpoint, fields_of
from forerun.server.fields.kinds import Anything
from tests.server.serving import Running
from tests.server.test_routes import error_of

PATHS: dict[Endpoint, tuple[str, dict[str, Any]]] = {
    Endpoint.COMPLETIONS: ("/v1/completions", {"prompt": "abc", "max_tokens": 1}),
    Endpoint.CHAT: (
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1},
    ),
    Endpoint.RESPONSES: ("/v1/responses", {"input": "abc", "max_output_tokens": 1}),
    Endpoint.INPUT_TOKENS: ("/v1/responses/input_tokens", {"input": "abc"}),
    Endpoint.MESSAGES: (
        "/v1/messages",
        {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1},
    ),
    Endpoint.COUNT_TOKENS: (
        "/v1/messages/count_tokens",
        {"messages": [{"role": "user", "content": "a"}]},
    ),
    Endpoint.TOKENIZE: ("/tokenize", {"prompt": "abc"}),
    Endpoint.DETOKENIZE: ("/detokenize", {"tokens": [1]}),
}
# Values that fit no field: too deeply nested, with an impossible key, or too large.
NOWHERE: list[Any] = [
    {"\u0000": {"\u0000": []}},
    [[[[["a"]]]]],
    10**30,
    -(10**30),
    1e300,
    float("nan"),
    float("inf"),
    "\ud800",
    [None],
    [{"type": "text", "text": 3}],
]


def bad_bodies(num: int) -> Iterator[tuple[str, bytes]]:
    """Yield valid bodies with one field spoilt, in escapes that a hostile client would write."""
    rng = random.Random(0)
    for _ in range(num):
        endpoint = rng.choice(list(PATHS))
        path, body = PATHS[endpoint]
        strict = [f for f in fields_of(endpoint) if not isinstance(f.kind, Anything)]
        field = rng.choice([f for f in strict if f.name != "reasoning"])
        spoilt = {**body, field.name: rng.choice(NOWHERE)}
        yield path, json.dumps(spoilt).encode()


def raw_bodies() -> Iterator[bytes]:
    yield b""
    yield b"null"
    yield b'"prompt"'
    yield b"\xff\xfe\x00"
    yield b'{"prompt": "\xc3\x28"}'
    yield b'{"prompt": "abc"'
    yield b'{"prompt": "abc"}}'
    yield b'{"prompt": "abc", "prompt": 3}'
    yield b'{"prompt": "abc", "n": ' + b"9" * 5000 + b"}"
    yield b'{"prompt": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    yield b'{"prompt": "abc", "metadata": ' + b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"}"
    yield b'{"prompt": "abc", "temperature": 1e999}'
    yield b'{"prompt": "abc", "temperature": Infinity}'
    yield b'{"prompt": "abc", "\\ud800": 1}'
    yield b'{"prompt": "abc", "structured_outputs": {"json": {"const": 1e999}}}'
    yield b'{"prompt": "abc", "metadata": ' + b'{"a":' * 300 + b"1" + b"}" * 300 + b"}"
    yield b'{"prompt": "abc", "metadata": ' + b"[" * 300 + b"]" * 300 + b"}"
    yield b"--boundary\r\nContent-Disposition: form-data\r\n\r\nx\r\n--boundary--"


def test_300_generated_bodies(server: Running) -> None:
    for path, content in bad_bodies(300):
        response = server.client.post(path, content=content)
        assert 400 <= response.status_code < 500, (path, content, response.text)
        error_of(response, response.status_code)
    assert server.client.get("/health").status_code == 200


def test_bodies_that_are_no_json(server: Running) -> None:
    for content in raw_bodies():
        error_of(server.client.post("/v1/completions", content=content), 400)


def test_ten_megabytes(server: Running) -> None:
    """A body over the limit gives 413; one below it, but longer than any context, gives 400."""
    for num, status in ((10_000_000, 413), (8_000_000, 400)):
        content = b'{"prompt": "' + b"a" * num + b'"}'
        error_of(server.client.post("/v1/completions", content=content), status)


@pytest.mark.parametrize(
    "odd",
    [
        {"temperature": 1e-300},
        {"temperature": 100, "top_p": 1e-300, "min_p": 1.0, "top_k": 2**31 - 1},
        {"repetition_penalty": 100.0, "presence_penalty": -2, "frequency_penalty": 2},
        {"logit_bias": {"0": -100, "31": 100}},
        {"allowed_token_ids": [3], "min_tokens": 4, "stop": ["a", "d"]},
        {"seed": -(2**63)},
        {"n": 8},
        {"stop_token_ids": [31] * 32},
        {"prompt": "\u0000é漢字\U0001f600", "truncate_prompt_tokens": -1},
    ],
    ids=str,
)
def test_what_is_odd_and_allowed_is_answered(server: Running, odd: dict[str, Any]) -> None:
    """Extreme values within bounds never give a 5xx."""
    body = {"prompt": "abc", "max_tokens": 5, **odd}
    response = server.client.post("/v1/completions", json=body)
    assert response.status_code == 200 or odd.get("prompt"), response.text
    assert response.status_code < 500, response.text
