"""The official `openai` client, unchanged, against a real server."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Iterator
from typing import Any, get_type_hints

import openai as typed_openai
import pytest

from forerun.server.fields import Endpoint, fields_of
from tests.server.serving import MODEL, Running
from tests.server.test_routes import CHAT

openai: Any = typed_openai  # its overloads know only OpenAI's models
SEEDED: dict[str, Any] = {"seed": 5, "extra_body": {"ignore_eos": True}}


@pytest.fixture(scope="module")
def client(server: Running) -> Iterator[Any]:
    """Strict: an answer that does not fit the client's own types raises."""
    options = {"api_key": "any", "max_retries": 0, "_strict_response_validation": True}
    with openai.OpenAI(base_url=f"{server.url}/v1", **options) as found:
        yield found


@pytest.fixture(scope="module")
def lax(client: Any) -> Any:
    """A client that does not validate, for a value that OpenAI's service sends and the client's
    types lack: null as the finish reason of a text completion's chunk."""
    return client.copy(_extra_kwargs={"_strict_response_validation": False})


def test_models(client: Any) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).owned_by == "forerun"


def test_completions_with_logprobs_and_n(client: Any, lax: Any) -> None:
    answer = client.completions.create(
        model=MODEL, prompt="abc", max_tokens=8, n=2, logprobs=2, **SEEDED
    )
    assert len(answer.choices) == 2
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.token_logprobs is not None
    assert len(logprobs.token_logprobs) == 8
    pieces = ["", ""]
    for chunk in lax.completions.create(
        model=MODEL, prompt="abc", max_tokens=8, n=2, stream=True, **SEEDED
    ):
        pieces[chunk.choices[0].index] += chunk.choices[0].text
    assert pieces == [choice.text for choice in answer.choices]


def test_chat_streams_and_usage(client: Any) -> None:
    whole = client.chat.completions.create(
        model=MODEL,
        messages=CHAT,
        max_completion_tokens=20,
        logprobs=True,
        top_logprobs=2,
        **SEEDED,
    )
    choice = whole.choices[0]
    assert choice.logprobs is not None
    assert choice.logprobs.content is not None
    assert len(choice.logprobs.content) == 20
    assert whole.system_fingerprint is not None
    stream = client.chat.completions.create(
        model=MODEL,
        messages=CHAT,
        max_completion_tokens=20,
        stream=True,
        stream_options={"include_usage": True},
        **SEEDED,
    )
    chunks = list(stream)
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == choice.message.content
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 20
    with client.chat.completions.stream(model=MODEL, messages=CHAT, seed=5) as events:
        final = events.get_final_completion()
    assert final.choices[0].finish_reason in ("stop", "length")


def test_stop_and_seed(client: Any) -> None:
    def ask(**options: object) -> str:
        answer = client.chat.completions.create(
            model=MODEL,
            messages=CHAT,
            max_tokens=30,
            **SEEDED,
            **options,
        )
        return str(answer.choices[0].message.content)

    whole = ask()
    assert whole == ask()
    assert ask(stop=[whole[5:7]]) == whole[: whole.index(whole[5:7])]


def test_predicted_outputs_are_counted(client: Any) -> None:
    def ask(prediction: str | None) -> tuple[str, int, int]:
        given = (
            {} if prediction is None else {"prediction": {"type": "content", "content": prediction}}
        )
        answer = client.chat.completions.create(
            model=MODEL,
            messages=CHAT,
            max_tokens=60,
            **SEEDED,
            **given,
        )
        details = answer.usage.completion_tokens_details
        return (
            answer.choices[0].message.content,
            details.accepted_prediction_tokens,
            details.rejected_prediction_tokens,
        )

    text, *counts = ask(None)
    assert counts == [0, 0]
    same, num_accepted, _ = ask(text)
    assert same == text
    assert num_accepted > 30
    same, _, num_rejected = ask("zzzzzzzz" * 8)
    assert same == text
    assert num_rejected > 0


def test_responses(client: Any) -> None:
    answer = client.responses.create(
        model=MODEL, input="hello there", max_output_tokens=12, extra_body={"seed": 5}
    )
    events = list(
        client.responses.create(
            model=MODEL,
            input="hello there",
            max_output_tokens=12,
            stream=True,
            extra_body={"seed": 5},
        )
    )
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == answer.output_text
    assert answer.usage is not None
    stop = answer.output_text[3:5]
    with client.responses.stream(
        model=MODEL,
        input="hello there",
        max_output_tokens=12,
        extra_body={"seed": 5, "stop": stop},
    ) as stream:
        final = stream.get_final_response().output_text
    assert final == answer.output_text.split(stop)[0]


COMMON: dict[str, Any] = {
    "model": MODEL,
    "stream": False,
    "temperature": 1,
    "top_p": 1,
    "user": "user-1234",
}
CACHED: dict[str, Any] = {
    "metadata": {"foo": "string"},
    "parallel_tool_calls": True,
    "prompt_cache_key": "prompt-cache-key-1234",
    "prompt_cache_options": {"mode": "implicit", "ttl": "30m"},
    "prompt_cache_retention": "in_memory",
    "safety_identifier": "safety-identifier-1234",
    "service_tier": "auto",
    "store": True,
    "tool_choice": "none",
    "tools": [],
    "top_logprobs": 0,
}
PENALTIES: dict[str, Any] = {"frequency_penalty": -2, "presence_penalty": -2}


def test_all_parameters_that_are_not_refused(client: Any) -> None:
    """The parameters of the client's own tests, less those that the table of fields refuses."""
    bias = {"logit_bias": {"3": 0}, "n": 1, "stop": "\n"}
    completion = client.completions.create(
        **COMMON, **PENALTIES, **bias, prompt="test.", logprobs=0, max_tokens=16, seed=0
    )
    assert completion.usage.completion_tokens > 0
    chat = client.chat.completions.create(
        **COMMON,
        **PENALTIES,
        **CACHED,
        **bias,
        messages=[{"content": "string", "role": "developer", "name": "name"}],
        function_call="none",
        logprobs=True,
        max_completion_tokens=16,
        modalities=["text"],
        prediction={"content": "string", "type": "content"},
        reasoning_effort="none",
        response_format={"type": "text"},
        seed=-9007199254740991,
        verbosity="low",
    )
    assert chat.usage.prompt_tokens > 0
    response = client.responses.create(
        **COMMON,
        **CACHED,
        access_programs={"cyber": "standard"},
        background=False,
        include=["message.output_text.logprobs"],
        input="string",
        instructions="instructions",
        max_output_tokens=16,
        max_tool_calls=0,
        reasoning={"effort": "none", "summary": "auto"},
        stream_options={"include_obfuscation": True},
        text={"format": {"type": "text"}, "verbosity": "low"},
        truncation="disabled",
    )
    assert response.metadata == {"foo": "string"}


def test_errors_are_the_clients_own(client: Any) -> None:
    with pytest.raises(openai.NotFoundError, match="not served here"):
        client.completions.create(model="gpt-9", prompt="a")
    with pytest.raises(openai.BadRequestError, match="cannot be called 'f g'") as caught:
        client.chat.completions.create(
            model=MODEL,
            messages=CHAT,
            tools=[{"type": "function", "function": {"name": "f g", "parameters": {}}}],
        )
    assert caught.value.param == "tools"
    with pytest.raises(openai.BadRequestError, match="context"):
        client.completions.create(model=MODEL, prompt="a" * 400)


def test_async_and_raw_streams(server: Running) -> None:
    async def main() -> None:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="any") as client:
            whole, stream = await asyncio.gather(
                client.chat.completions.create(model=MODEL, messages=CHAT, max_tokens=20, **SEEDED),
                client.chat.completions.create(
                    model=MODEL, messages=CHAT, max_tokens=20, stream=True, **SEEDED
                ),
            )
            text = ""
            async for chunk in stream:
                text += chunk.choices[0].delta.content or ""
            assert text == whole.choices[0].message.content
            async with client.chat.completions.with_streaming_response.create(
                model=MODEL, messages=CHAT, max_tokens=20, stream=True, **SEEDED
            ) as raw:
                lines = [line async for line in raw.iter_lines()]
            assert raw.headers["content-type"].startswith("text/event-stream")
            assert raw.headers["x-request-id"]
            assert lines[-2] == "data: [DONE]"

    asyncio.run(main())


@pytest.mark.parametrize(
    ("endpoint", "where", "names"),
    [
        (Endpoint.COMPLETIONS, "completion_create_params", "CompletionCreateParamsBase"),
        (Endpoint.CHAT, "chat.completion_create_params", "CompletionCreateParamsBase"),
        (Endpoint.RESPONSES, "responses.response_create_params", "ResponseCreateParamsBase"),
        (Endpoint.INPUT_TOKENS, "responses.input_token_count_params", "InputTokenCountParams"),
    ],
)
def test_every_field_of_the_client_is_in_our_list(
    endpoint: Endpoint, where: str, names: str
) -> None:
    module = importlib.import_module(f"openai.types.{where}")
    theirs = set(get_type_hints(getattr(module, names)))
    if names.endswith("Base"):  # the base of two classes that differ only in `stream`
        theirs.add("stream")
    ours = {field.name for field in fields_of(endpoint)}
    assert sorted(theirs - ours) == []
