"""Structured outputs over HTTP, in OpenAI's fields and in vLLM's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import openai as typed_openai
import pydantic
import pytest

from tests.server.serving import MODEL, Running, serving
from tests.server.test_routes import CHAT, error_of

openai: Any = typed_openai  # its overloads know only OpenAI's models
COMPLETIONS, CHATS, RESPONSES = "/v1/completions", "/v1/chat/completions", "/v1/responses"


class Pet(pydantic.BaseModel):
    """A type that the client asks for."""

    model_config = pydantic.ConfigDict(extra="forbid")
    name: Literal["tom", "kitty"]
    age: int = pydantic.Field(ge=0, le=99)


WANTED_DIGITS = {"structured_outputs": {"regex": "[0-9]{3}"}}
SCHEMA = Pet.model_json_schema()


@pytest.fixture(scope="module")
def server(tiny_json_path: Path) -> Iterator[Running]:
    fixed = '{"method": "suffix", "adaptive": false}'  # independent of this machine's speed
    options = ("--kernels", "reference", "--speculative-config", fixed)
    with serving(tiny_json_path, *options) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Running) -> Iterator[Any]:
    options = {"api_key": "any", "max_retries": 0, "_strict_response_validation": True}
    with openai.OpenAI(base_url=f"{server.url}/v1", **options) as found:
        yield found


def text_of(answer: dict[str, Any]) -> str:
    if "output" in answer:
        return str(answer["output"][0]["content"][0]["text"])
    choice = answer["choices"][0]
    return str(choice["text"] if "text" in choice else choice["message"]["content"])


def body(path: str, **more: Any) -> dict[str, Any]:
    asked: dict[str, dict[str, Any]] = {
        COMPLETIONS: {"prompt": "abc"},
        CHATS: {"messages": CHAT},
        RESPONSES: {"input": "abc"},
    }
    length = "max_output_tokens" if path == RESPONSES else "max_tokens"
    return {"model": MODEL, length: 200, "seed": 3, **asked[path], **more}


@pytest.mark.parametrize("path", [COMPLETIONS, CHATS, RESPONSES])
@pytest.mark.parametrize(
    ("wanted", "texts"),
    [
        ({"choice": ["tom", "kitty"]}, {"tom", "kitty"}),
        ({"regex": "(ab){3}"}, {"ababab"}),
        ({"grammar": 'root ::= "x" "y"'}, {"xy"}),
        ({"json": {"const": {"a": 1}}, "disable_any_whitespace": True}, {'{"a":1}'}),
        ({"json": json.dumps({"enum": ["a"]})}, {'"a"'}),
    ],
)
def test_vllms_field(server: Running, path: str, wanted: Any, texts: set[str]) -> None:
    asked = body(path, structured_outputs=wanted)
    assert text_of(server.ask(path, **asked)) in texts
    without = server.ask(path, **asked, speculative=False)
    assert text_of(without) == text_of(server.ask(path, **asked))


def test_a_schema_needs_no_name(server: Running) -> None:
    asked = {"type": "json_schema", "json_schema": {"schema": {"enum": ["a", "b"]}}}
    answer = server.ask(CHATS, **body(CHATS, response_format=asked))
    assert text_of(answer) in ('"a"', '"b"')


def test_the_client_parses_types(client: Any) -> None:
    """As in OpenAI's documentation: a class in, an instance out."""
    chat = client.chat.completions.parse(
        model=MODEL, messages=CHAT, response_format=Pet, seed=4, max_completion_tokens=200
    )
    assert isinstance(chat.choices[0].message.parsed, Pet)
    assert chat.choices[0].finish_reason == "stop"
    response = client.responses.parse(
        model=MODEL, input="abc", text_format=Pet, max_output_tokens=200
    )
    assert isinstance(response.output_parsed, Pet)
    assert response.text.format.type == "json_schema"


def test_the_client_streams_types(client: Any) -> None:
    with client.chat.completions.stream(
        model=MODEL, messages=CHAT, response_format=Pet, seed=4, max_completion_tokens=200
    ) as stream:
        pieces = [event.delta for event in stream if event.type == "content.delta"]
        final = stream.get_final_completion().choices[0].message
    assert isinstance(final.parsed, Pet)
    assert "".join(pieces) == final.content


def test_any_object(server: Running) -> None:
    """A small random model hardly ever ends an object, so only its beginning is checked."""
    asked = body(CHATS, response_format={"type": "json_object"}, max_tokens=30)
    assert text_of(server.ask(CHATS, **asked)).startswith("{")
    named = {"type": "json_schema", "json_schema": {"name": "any"}}
    assert text_of(server.ask(CHATS, **body(CHATS, response_format=named))).startswith("{")


def test_several_choices_fit_each(server: Running) -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "pet", "schema": SCHEMA}}
    answer = server.ask(CHATS, **body(CHATS, response_format=wanted, n=4, logprobs=True))
    for choice in answer["choices"]:
        Pet.model_validate_json(choice["message"]["content"])


def test_a_prediction_beside_a_schema(server: Running) -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "pet", "schema": SCHEMA}}
    plain = server.ask(CHATS, **body(CHATS, response_format=wanted))
    expected = {"type": "content", "content": text_of(plain)}
    again = server.ask(CHATS, **body(CHATS, response_format=wanted, prediction=expected))
    assert text_of(again) == text_of(plain)
    assert again["usage"]["completion_tokens_details"]["accepted_prediction_tokens"] > 0


@pytest.mark.parametrize(
    ("path", "field", "wanted", "sentence"),
    [
        (CHATS, "structured_outputs", {"regex": "(a"}, "the regular expression cannot be used"),
        (CHATS, "structured_outputs", {"regex": "a", "choice": ["b"]}, "given: regex and choice"),
        (CHATS, "structured_outputs", {}, "given: none"),
        (COMPLETIONS, "structured_outputs", {"json": "{"}, "no JSON schema"),
        (
            CHATS,
            "response_format",
            {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "cat"}}},
            "the JSON schema cannot be used",
        ),
        (
            RESPONSES,
            "text.format",
            {"format": {"type": "json_schema", "name": "a", "schema": {"not": {}}}},
            "the JSON schema cannot be used",
        ),
    ],
)
def test_what_is_no_grammar(
    server: Running, path: str, field: str, wanted: Any, sentence: str
) -> None:
    response = server.post(path, **body(path, **{field.split(".")[0]: wanted}))
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert sentence in error["message"]
    assert error["param"] == field


def test_two_ways_at_once(server: Running) -> None:
    both = {"structured_outputs": {"regex": "a"}, "response_format": {"type": "json_object"}}
    error = server.post(CHATS, **body(CHATS, **both)).json()["error"]
    assert "both say what the answer looks like" in error["message"]
    assert (
        text_of(
            server.ask(
                CHATS,
                **body(CHATS, structured_outputs={"regex": "ab"}, response_format={"type": "text"}),
            )
        )
        == "ab"
    )


def test_options_that_leave_nothing(server: Running) -> None:
    """A contradiction that shows only at run time is still the client's mistake: 400."""
    asked = body(CHATS, structured_outputs={"regex": "[0-9]+"}, allowed_token_ids=[0, 1])
    response = server.post(CHATS, **asked)
    assert response.status_code == 400, response.text
    assert "every token is masked out" in response.json()["error"]["message"]
    assert server.ask(CHATS, **body(CHATS))


def test_hostile_grammars_end_nothing_and_hold_nobody_up(server: Running) -> None:
    """One overflows llguidance's stack, the other takes long; meanwhile others are answered."""
    links = {f"d{idx}": {"anyOf": [{"$ref": f"#/$defs/d{idx + 1}"}]} for idx in range(1400)}
    deep = {"$ref": "#/$defs/d0", "$defs": {**links, "d1400": {"type": "integer"}}}
    with ThreadPoolExecutor(2) as pool:
        asked = [
            pool.submit(server.client.post, COMPLETIONS, json=body(COMPLETIONS, **hostile))
            for hostile in (
                {"structured_outputs": {"regex": "(a{1000}){1000}"}},
                {"structured_outputs": {"json": deep}},
            )
        ]
        plain = server.client.post(COMPLETIONS, json=body(COMPLETIONS))
        assert plain.status_code == 200
        assert not asked[0].done(), "hostile ones wait in a line of their own"
        for answer in asked:
            error = error_of(answer.result(), 400)
            assert error["param"] == "structured_outputs"
            assert "cannot be used (it t" in error["message"] or "too much" in error["message"]
    again = server.client.post(COMPLETIONS, json=body(COMPLETIONS, **WANTED_DIGITS))
    assert text_of(again.json()).isdigit()


def test_the_trace_names_the_grammar(server: Running) -> None:
    asked = body(CHATS, structured_outputs={"choice": ["abcabcabcabcabc"]})
    answer = server.ask(CHATS, **asked, forerun={"trace": True})
    drafters = {done["drafter"] for done in answer["choices"][0]["forerun"]["trace"]}
    assert "grammar" in drafters
