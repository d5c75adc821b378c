"""The official `anthropic` client, unchanged, against a real server; and messages against the chat
requests into which they are translated."""

from __future__ import annotations

import asyncio
import importlib
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, get_type_hints

import anthropic as typed_anthropic
import pytest

from forerun.server.answers.messages import message_events
from forerun.server.errors import ApiError
from forerun.server.fields import Endpoint, fields_of, read_fields
from forerun.server.messages import as_chat
from tests.server.fields.test_reasoning import CLOSE, OPEN, PET, TEMPLATE
from tests.server.serving import MODEL, Running, serving

anthropic: Any = typed_anthropic  # its overloads know only Anthropic's models
MESSAGES, COUNT, CHATS = "/v1/messages", "/v1/messages/count_tokens", "/v1/chat/completions"
ASKED = [{"role": "user", "content": "which pet?"}]
OFTEN = {str(OPEN): 3, str(CLOSE): 4}
BODY: dict[str, Any] = {"model": MODEL, "messages": ASKED, "max_tokens": 60, "logit_bias": OFTEN}
TOOL = {"name": "feed", "description": "Feeds a pet.", "input_schema": PET}
SEARCH = {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}
CALLS = {"tools": [TOOL, SEARCH], "tool_choice": {"type": "any"}}


@pytest.fixture(scope="module")
def server(
    tiny_reasoning_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    template = tmp_path_factory.mktemp("templates") / "chat.jinja"
    template.write_text(TEMPLATE)
    fixed = '{"method": "suffix", "adaptive": false}'  # independent of this machine's speed
    options = ("--kernels", "reference", "--speculative-config", fixed)
    more = ("--chat-template", str(template), "--tool-call-parser", "hermes")
    with serving(tiny_reasoning_path, *options, *more, "--api-key", "mine") as running:
        running.client.headers["X-Api-Key"] = "mine"
        yield running


@pytest.fixture(scope="module")
def client(server: Running) -> Iterator[Any]:
    """Strict: an answer that does not fit the client's own types raises."""
    options = {"api_key": "mine", "max_retries": 0, "_strict_response_validation": True}
    with anthropic.Anthropic(base_url=server.url, **options) as found:
        yield found


def asked(**more: Any) -> dict[str, Any]:
    """Return arguments for the client's method; fields unknown to it go into `extra_body`."""
    body = {**BODY, **more}
    known = {"model", "messages", "max_tokens", "tools", "tool_choice", "system", "stop_sequences"}
    extra = {name: body.pop(name) for name in list(body) if name not in known}
    return {**body, "extra_body": extra}


def without_ids(content: list[Any]) -> list[dict[str, Any]]:
    found = [block.model_dump(exclude_none=True) for block in content]
    return [{name: value for name, value in block.items() if name != "id"} for block in found]


def test_the_loop_of_an_agent(client: Any) -> None:
    """Question, tool call, tool result, answer."""
    first = client.messages.create(**asked(**CALLS, seed=1, max_tokens=200))
    assert first.stop_reason == "tool_use"
    calls = [block for block in first.content if block.type == "tool_use"]
    assert calls
    assert all(call.name == "feed" and call.input["pet"] in ("cat", "canary") for call in calls)
    results = [{"type": "tool_result", "tool_use_id": c.id, "content": "fed"} for c in calls]
    turns = [
        *ASKED,
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": [*results, {"type": "text", "text": "and now?"}]},
    ]
    second = client.messages.create(**asked(messages=turns, tools=[TOOL], seed=1))
    counted = client.messages.count_tokens(model=MODEL, messages=turns, tools=[TOOL])
    usage = second.usage
    assert counted.input_tokens == usage.input_tokens + usage.cache_read_input_tokens
    assert usage.input_tokens > first.usage.input_tokens
    assert usage.cache_read_input_tokens > 0


@pytest.mark.parametrize(
    "more", [{}, CALLS, {"tools": [TOOL]}, {"system": [{"type": "text", "text": "Be brief."}]}]
)
def test_a_stream_tells_the_same(client: Any, more: dict[str, Any]) -> None:
    kinds = set[str]()
    for seed in range(6):
        body = asked(**more, seed=seed, max_tokens=100)
        whole = client.messages.create(**body)
        plain = client.messages.create(
            **asked(**more, seed=seed, max_tokens=100, speculative=False)
        )
        with client.messages.stream(**body) as stream:
            told = stream.get_final_message()
        assert without_ids(told.content) == without_ids(whole.content) == without_ids(plain.content)
        assert told.stop_reason == whole.stop_reason == plain.stop_reason
        assert told.usage.output_tokens == whole.usage.output_tokens
        kinds |= {block.type for block in whole.content}
    if "tool_choice" in more:
        assert "tool_use" in kinds
    else:
        assert kinds >= ({"text"} if "tools" in more else {"text", "thinking"})


def test_events_come_in_their_order(server: Running) -> None:
    for more in ({}, CALLS):
        events = [json.loads(one) for one in server.stream(MESSAGES, **{**BODY, **more, "seed": 2})]
        kinds = [event["type"] for event in events]
        assert kinds[:2] == ["message_start", "ping"]
        assert kinds[-2:] == ["message_delta", "message_stop"]
        assert events[0]["message"]["usage"]["output_tokens"] == 0
        at, is_open = -1, False
        for event in events[2:-2]:
            if event["type"] == "content_block_start":
                assert not is_open
                at, is_open = at + 1, True
            assert (event["index"], is_open) == (at, True)
            is_open = event["type"] != "content_block_stop"
        assert not is_open


def test_words_are_those_of_chat(server: Running) -> None:
    """Messages give the same prompt and the same draws as chat, under other field names."""
    turns = [
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "user", "content": "c"},
        {"role": "assistant", "content": "d"},
        {"role": "user", "content": "e"},
    ]
    alike = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "a\nb\nc"},
        {"role": "assistant", "content": "d"},
        {"role": "user", "content": "e"},
    ]
    shared = {"max_tokens": 40, "seed": 4, "logit_bias": OFTEN, "top_p": 0.9}
    for mine, theirs in (
        ({}, {}),
        ({"stop_sequences": ["c", "7"]}, {"stop": ["c", "7"]}),
        (
            {"output_config": {"format": {"type": "json_schema", "schema": PET}}},
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "pet", "schema": PET},
                }
            },
        ),
    ):
        body = {"messages": turns, "system": "Be brief.", **shared, **mine}
        message = server.ask(MESSAGES, **body)
        chat = server.ask(CHATS, **{"messages": alike, **shared, **theirs})
        said = chat["choices"][0]["message"]
        found = {block["type"]: block[block["type"]] for block in message["content"]}
        expected = {"thinking": said.get("reasoning") or "", "text": said["content"]}
        assert found == {kind: text for kind, text in expected.items() if text}
        assert message["usage"]["output_tokens"] == chat["usage"]["completion_tokens"]


def test_why_it_ends(server: Running) -> None:
    def ending(**more: Any) -> tuple[str, str | None]:
        found = server.ask(MESSAGES, **{**BODY, "temperature": 0, **more})
        return found["stop_reason"], found["stop_sequence"]

    never = {"ignore_eos": True, "logit_bias": {str(CLOSE): -100}}
    assert ending(max_tokens=3, **never) == ("max_tokens", None)
    assert ending(max_tokens=9999, **never) == ("model_context_window_exceeded", None)
    text = server.ask(MESSAGES, **{**BODY, "temperature": 0, **never})["content"][0]
    stop = text[text["type"]][3:5]
    assert ending(**never, stop_sequences=[stop]) == ("stop_sequence", stop)
    assert ending(**CALLS, max_tokens=200) == ("tool_use", None)


def test_a_call_that_is_cut_off_is_not_to_be_run(server: Running) -> None:
    whole = server.ask(MESSAGES, **{**BODY, **CALLS, "seed": 1, "max_tokens": 200})
    num = whole["usage"]["output_tokens"]
    found = server.ask(MESSAGES, **{**BODY, **CALLS, "seed": 1, "max_tokens": num - 16})
    assert found["stop_reason"] == "max_tokens"
    calls = [block for block in whole["content"] if block["type"] == "tool_use"]
    left = [block for block in found["content"] if block["type"] == "tool_use"]
    assert len(left) == len(calls) - 1


def test_what_the_assistant_began_goes_on(server: Running) -> None:
    begun = [*ASKED, {"role": "assistant", "content": "the c"}]
    chat = {"messages": begun, "continue_final_message": True, "add_generation_prompt": False}
    shared = {"max_tokens": 9, "seed": 3}
    message = server.ask(MESSAGES, messages=begun, **shared)
    expected = server.ask(CHATS, **chat, **shared)["choices"][0]["message"]["content"]
    assert "".join(block["text"] for block in message["content"]) == expected


def test_thinking(server: Running) -> None:
    thinks = {**BODY, "logit_bias": {str(OPEN): 60}, "seed": 1, "max_tokens": 20}
    found = server.ask(MESSAGES, **thinks)
    assert found["content"][0]["type"] == "thinking"
    assert found["usage"]["output_tokens_details"]["thinking_tokens"] == 20
    omitted = {**thinks, "thinking": {"type": "adaptive", "display": "omitted"}}
    block = {"type": "thinking", "thinking": "", "signature": ""}
    assert server.ask(MESSAGES, **omitted)["content"] == [block]
    events = [json.loads(event) for event in server.stream(MESSAGES, **omitted)]
    assert [e["content_block"] for e in events if e["type"] == "content_block_start"] == [block]
    assert not [e for e in events if e["type"] == "content_block_delta"]


def test_thinking_is_turned_off_in_the_prompt(server: Running) -> None:
    """The template then closes the reasoning in the prompt, which takes more tokens."""

    def num_tokens(**more: Any) -> int:
        found = server.ask(COUNT, model=MODEL, messages=ASKED, **more)
        return int(found["input_tokens"])

    usual = num_tokens()
    assert num_tokens(thinking={"type": "disabled"}) > usual
    assert num_tokens(thinking={"type": "enabled", "budget_tokens": 1024}) == usual


@pytest.mark.parametrize(
    ("more", "effort", "variables"),
    [
        ({}, None, {}),
        ({"thinking": {"type": "disabled"}, "output_config": {"effort": "low"}}, "none", {}),
        ({"output_config": {"effort": "low"}}, "low", {}),
        ({"thinking": {"type": "adaptive"}}, None, {"enable_thinking": True}),
        (
            {"thinking": {"type": "enabled"}, "chat_template_kwargs": {"enable_thinking": False}},
            None,
            {"enable_thinking": False},
        ),
    ],
)
def test_how_much_to_think(more: dict[str, Any], effort: str | None, variables: Any) -> None:
    found = in_chat({"role": "user", "content": "a"}, **more)
    assert found.get("reasoning_effort") == effort
    assert found.get("chat_template_kwargs", {}) == variables


def test_without_an_answer_the_prompt_is_cached(server: Running) -> None:
    turns = [{"role": "user", "content": "which of all these pets? " * 5}]
    none = server.ask(MESSAGES, messages=turns, max_tokens=0)
    assert (none["content"], none["stop_reason"]) == ([], "max_tokens")
    assert none["usage"]["output_tokens"] == 0
    events = [json.loads(one) for one in server.stream(MESSAGES, messages=turns, max_tokens=0)]
    assert not [event for event in events if event["type"].startswith("content_block")]
    usage = server.ask(MESSAGES, messages=turns, max_tokens=1)["usage"]
    assert usage["cache_read_input_tokens"] > usage["input_tokens"]


def test_the_runner_of_tools_does_without_stored_threads(client: Any) -> None:
    """The runner first asks for a stored thread, and goes on if the error says there are none."""
    runs = list[str]()

    @anthropic.beta_tool  # type: ignore[untyped-decorator]
    def feed(pet: Literal["cat", "canary"]) -> str:
        """Feeds a pet.

        Args:
            pet: Which one.
        """
        runs.append(pet)
        return "fed"

    body = asked(max_tokens=200, seed=1, tool_choice={"type": "tool", "name": "feed"})
    runner = client.beta.messages.tool_runner(**body, tools=[feed], max_iterations=2)
    assert [message.stop_reason for message in runner] == ["tool_use", "tool_use"]
    assert len(runs) == 2


def test_rounds_are_told(server: Running) -> None:
    body = {**BODY, "seed": 2, "forerun": {"trace": True}}
    whole = server.ask(MESSAGES, **body)
    events = [json.loads(event) for event in server.stream(MESSAGES, **body)]
    told = [done for event in events for done in event.get("forerun", {}).get("trace", ())]
    emitted = [token["token_id"] for done in told for token in done["emitted"]]
    assert len(emitted) == whole["usage"]["output_tokens"]
    again = [t["token_id"] for done in whole["forerun"]["trace"] for t in done["emitted"]]
    assert emitted == again


def test_errors_are_those_of_anthropic(server: Running, client: Any) -> None:
    for error, more in (
        (anthropic.NotFoundError, {"model": "other"}),
        (
            anthropic.BadRequestError,
            {"messages": [{"role": "user", "content": [{"type": "image"}]}]},
        ),
        (anthropic.BadRequestError, {"max_tokens": -1}),
        (anthropic.BadRequestError, {"messages": []}),
        (anthropic.BadRequestError, {"output_format": {"type": "json_schema"}}),
        (anthropic.BadRequestError, {"tools": [{"type": "bash_20250124", "name": "bash"}]}),
    ):
        with pytest.raises(error) as caught:
            client.messages.create(**asked(**more))
        assert set(caught.value.body) == {"type", "error", "request_id"}
        assert caught.value.body["request_id"] == caught.value.response.headers["x-request-id"]
        assert caught.value.request_id == caught.value.body["request_id"]
        assert caught.value.body["error"]["type"] in ("not_found_error", "invalid_request_error")
    with pytest.raises(anthropic.AuthenticationError) as refused:
        client.copy(api_key="other").messages.create(**asked())
    assert refused.value.body["error"]["type"] == "authentication_error"
    bearer = anthropic.Anthropic(base_url=server.url, auth_token="mine", api_key=None)
    assert bearer.messages.create(**asked()).type == "message"
    nowhere = server.client.post("/v1/messages/batches", json={}).json()
    assert (nowhere["type"], nowhere["error"]["type"]) == ("error", "not_found_error")


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (403, "permission_error"),
        (413, "request_too_large"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (503, "overloaded_error"),
    ],
)
def test_types_of_errors(status: int, kind: str) -> None:
    assert ApiError(status, "no.").for_anthropic("r")["error"] == {"type": kind, "message": "no."}
    coded = ApiError(status, "no.", code="why").for_anthropic("r")["error"]
    assert coded["details"] == {"error_code": "why"}


def test_the_asynchronous_client(server: Running) -> None:
    async def main() -> None:
        options = {"api_key": "mine", "max_retries": 0, "_strict_response_validation": True}
        async with (
            anthropic.AsyncAnthropic(base_url=server.url, **options) as client,
            client.messages.stream(**asked(seed=3)) as stream,
        ):
            told = await stream.get_final_message()
            whole = await client.messages.create(**asked(seed=3))
        assert without_ids(told.content) == without_ids(whole.content)

    asyncio.run(main())


def test_an_error_on_the_way_is_an_event() -> None:
    async def fails() -> AsyncIterator[Any]:
        yield {"type": "ping"}
        raise ApiError(504, "too late.")

    async def lines() -> list[bytes]:
        form: Any = SimpleNamespace(events=fails)
        nobody: Any = None
        return [line async for line in message_events(form, nobody)]

    ping, failed = asyncio.run(lines())
    assert ping == b'event: ping\ndata: {"type":"ping"}\n\n'
    name, data = failed.decode().split("\n", 1)
    assert name == "event: error"
    told = json.loads(data.removeprefix("data: "))
    assert told["error"] == {"type": "timeout_error", "message": "too late."}


@pytest.mark.parametrize("kind", ["tool_search_tool_regex", "web_fetch_20250910"])
def test_what_anthropic_runs_is_left_out(kind: str) -> None:
    found = in_chat({"role": "user", "content": "a"}, tools=[TOOL, {"type": kind, "name": "x"}])
    assert [tool["function"]["name"] for tool in found["tools"]] == ["feed"]


def test_its_streams_end_with_an_event(server: Running) -> None:
    """Which the description of the API says, too."""
    paths = server.client.get("/openapi.json").json()["paths"]

    def ends(path: str) -> bool:
        content = paths[path]["post"]["responses"]["200"]["content"]["text/event-stream"]
        return "[DONE]" in json.dumps(content)

    assert (ends(MESSAGES), ends(CHATS)) == (False, True)
    assert json.loads(server.stream(MESSAGES, **BODY)[-1])["type"] == "message_stop"


def in_chat(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    body = {"messages": list(messages), "max_tokens": 3, **more}
    return as_chat(read_fields(Endpoint.MESSAGES, body))


def test_results_of_tools_come_where_they_stood() -> None:
    call = {"type": "tool_use", "id": "c1", "name": "feed", "input": {"pet": "cat"}}
    brought = {"type": "tool_result", "tool_use_id": "c1", "is_error": False}
    others = {"type": "redacted_thinking", "data": "x"}
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    text = {"type": "text", "text": "go on", "cache_control": {"type": "ephemeral"}}
    found = in_chat(
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": [others, thought, call]},
        {"role": "user", "content": [brought, text]},
        {"role": "system", "content": "b"},
    )["messages"]
    assert [message["role"] for message in found] == ["user", "assistant", "tool", "user", "system"]
    assert found[1]["reasoning"] == "hm"
    assert found[1]["tool_calls"][0]["function"] == {"name": "feed", "arguments": '{"pet": "cat"}'}
    assert found[2] == {"role": "tool", "tool_call_id": "c1", "content": ""}
    assert found[3]["content"] == [{"type": "text", "text": "go on"}]
    with pytest.raises(ApiError, match="send its tool_result"):
        in_chat({"role": "assistant", "content": [call]})


def test_a_prompt_that_fits_stays_whole_whatever_is_asked_for(server: Running) -> None:
    """Clients ask for more tokens than the context holds; the prompt must not be cut for that."""
    turns = [{"role": "user", "content": "which pet? " * 9}]
    body = {**BODY, "messages": turns, "max_tokens": 9999, "ignore_eos": True}
    plain = server.ask(MESSAGES, **body)["usage"]
    kept = server.ask(MESSAGES, **body, truncate_prompt_tokens=-1)["usage"]
    num = plain["input_tokens"] + plain["cache_read_input_tokens"]
    assert kept["input_tokens"] + kept["cache_read_input_tokens"] == num


def test_the_system_says_it_at_once() -> None:
    found = in_chat(
        {"role": "system", "content": "b"}, {"role": "user", "content": "c"}, system="a"
    )
    assert [message["role"] for message in found["messages"]] == ["system", "user"]
    texts = [block["text"] for block in found["messages"][0]["content"]]
    assert texts == ["a", "b"]


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (
            {"tools": [SEARCH], "tool_choice": {"type": "any"}},
            "web_search_20250305: Anthropic runs",
        ),
        (
            {"tools": [SEARCH], "tool_choice": {"type": "tool", "name": "web_search"}},
            "web_search_20250305: Anthropic runs",
        ),
        ({"output_config": {"format": {"type": "json_schema", "schema": {}}}}, "drop one"),
    ],
)
def test_what_cannot_be(more: dict[str, Any], sentence: str) -> None:
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "{"}]
    with pytest.raises(ApiError, match=sentence):
        in_chat(*turns, **more)


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"type": "auto"}, "auto"),
        ({"type": "any"}, "required"),
        ({"type": "none"}, "none"),
        ({"type": "tool", "name": "feed"}, {"type": "function", "function": {"name": "feed"}}),
    ],
)
def test_choices_of_tools(choice: dict[str, Any], expected: Any) -> None:
    for more in ({}, {"disable_parallel_tool_use": True}):
        found = in_chat(
            {"role": "user", "content": "a"}, tool_choice={**choice, **more}, tools=[TOOL]
        )
        assert found["tool_choice"] == expected
        assert found["parallel_tool_calls"] == (not more)
        (function,) = (tool["function"] for tool in found["tools"])
        assert (function["name"], function["description"]) == ("feed", "Feeds a pet.")


@pytest.mark.parametrize(
    ("endpoint", "where", "names"),
    [
        (Endpoint.MESSAGES, "message_create_params", "MessageCreateParamsBase"),
        (Endpoint.COUNT_TOKENS, "message_count_tokens_params", "MessageCountTokensParams"),
        (Endpoint.MESSAGES, "beta.message_create_params", "MessageCreateParamsBase"),
        (Endpoint.COUNT_TOKENS, "beta.message_count_tokens_params", "MessageCountTokensParams"),
    ],
)
def test_every_field_of_the_client_is_in_our_list(
    endpoint: Endpoint, where: str, names: str
) -> None:
    module = importlib.import_module(f"anthropic.types.{where}")
    theirs = set(get_type_hints(getattr(module, names))) - {"betas"}  # sent as a header
    assert sorted(theirs - {field.name for field in fields_of(endpoint)}) == []
