"""Tools over HTTP, with OpenAI's own client and without."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import openai as typed_openai
import pydantic
import pytest

from forerun.server.fields import Endpoint, read_fields
from tests.server.serving import MODEL, Running, serving
from tests.tiny_model import JSON_LETTERS

openai: Any = typed_openai  # its overloads know only OpenAI's models
CHATS, RESPONSES, TOKENIZE = "/v1/chat/completions", "/v1/responses", "/tokenize"
TEMPLATE = (
    "{% for t in tools or [] %}{{ t.function.name }} {% endfor %}{% for m in messages %}"
    "{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>{{ c.function.name }}"
    "{{ c.function.arguments.kind }}{% endfor %}\n{% endfor %}"
)


class Pet(pydantic.BaseModel):
    """Tells of a pet."""

    model_config = pydantic.ConfigDict(extra="forbid")
    kind: Literal["cat", "canary"]
    ages: list[Literal[1, 2, 17]] = pydantic.Field(max_length=2)


def named(name: str, schema: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """Return a tool in the format of responses."""
    return {"type": "function", "name": name, "parameters": schema or PET, **more}


def only(name: str) -> dict[str, Any]:
    """Return a `tool_choice` in the format of chat."""
    return {"type": "function", "function": {"name": name}}


def nested(tool: dict[str, Any]) -> dict[str, Any]:
    """Return the same tool in the format of chat."""
    return {
        "type": "function",
        "function": {name: value for name, value in tool.items() if name != "type"},
    }


PET = Pet.model_json_schema()
FLAT = [named("pet", strict=True), named("other", {"type": "object", "properties": {}})]
TOOLS = [nested(tool) for tool in FLAT]
ASKED = [{"role": "user", "content": "which pet?"}]
CHAT: dict[str, Any] = {"model": MODEL, "messages": ASKED, "seed": 3, "max_tokens": 200}
RESPONSE: dict[str, Any] = {"model": MODEL, "input": "which pet?", "max_output_tokens": 200}


@pytest.fixture(scope="module")
def server(tiny_json_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    template = tmp_path_factory.mktemp("templates") / "chat.jinja"
    template.write_text(TEMPLATE)
    fixed = '{"method": "suffix", "adaptive": false}'  # independent of this machine's speed
    options = ("--kernels", "reference", "--speculative-config", fixed)
    more = ("--chat-template", str(template), "--tool-call-parser", "hermes")
    with serving(tiny_json_path, *options, *more) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Running) -> Iterator[Any]:
    options = {"api_key": "any", "max_retries": 0, "_strict_response_validation": True}
    with openai.OpenAI(base_url=f"{server.url}/v1", **options) as found:
        yield found


def test_a_call_and_what_it_brought(client: Any) -> None:
    """The loop of every agent: question, tool call, tool result, answer."""
    answer = client.chat.completions.create(**CHAT, tools=TOOLS, tool_choice=only("pet"))
    (choice,) = answer.choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    for call in choice.message.tool_calls:
        assert call.function.name == "pet"
        Pet.model_validate_json(call.function.arguments)
    told = [
        {"role": "tool", "tool_call_id": call.id, "content": "it sleeps."}
        for call in choice.message.tool_calls
    ]
    messages = [*ASKED, choice.message, *told]
    again = client.chat.completions.create(**{**CHAT, "messages": messages}, tools=TOOLS)
    assert again.usage.prompt_tokens > answer.usage.prompt_tokens


def joined(deltas: list[dict[str, Any]]) -> tuple[str, list[dict[str, Any]]]:
    """Join a stream's deltas as clients do."""
    words, calls = "", list[dict[str, Any]]()
    for delta in deltas:
        words += delta.get("content") or ""
        for part in delta.get("tool_calls", ()):
            if part["index"] == len(calls):
                assert part["type"] == "function"
                calls.append({"id": part["id"], **part["function"]})
            else:
                assert part["index"] == len(calls) - 1
                calls[-1]["arguments"] += part["function"]["arguments"]
    return words, calls


@pytest.mark.parametrize("choice", ["auto", "required", "pet"])
@pytest.mark.parametrize("parallel", [True, False])
def test_a_stream_tells_the_same(server: Running, choice: Any, parallel: bool) -> None:
    kinds = set[str]()
    for seed in range(3):
        wanted = only(choice) if choice == "pet" else choice
        more = {"tools": TOOLS, "tool_choice": wanted, "parallel_tool_calls": parallel, "n": 2}
        asked = {**CHAT, "seed": seed, **more}
        whole = server.ask(CHATS, **asked)
        plain = server.ask(CHATS, **asked, speculative=False)
        chunks = [json.loads(each) for each in server.stream(CHATS, **asked)[:-1]]
        for one in whole["choices"]:
            told = [c for chunk in chunks for c in chunk["choices"] if c["index"] == one["index"]]
            words, calls = joined([each["delta"] for each in told])
            message, other = one["message"], plain["choices"][one["index"]]["message"]
            expected = [each["function"] for each in message.get("tool_calls", ())]
            assert expected == [each["function"] for each in other.get("tool_calls", ())]
            assert words == (message["content"] or "") == (other["content"] or "")
            assert [{k: c[k] for k in ("name", "arguments")} for c in calls] == expected
            assert [each["finish_reason"] for each in told if each["finish_reason"]] == [
                one["finish_reason"]
            ]
            assert len({call["id"] for call in calls}) == len(calls)
            assert parallel or len(calls) <= 1
            kinds.add(one["finish_reason"])
    assert ("tool_calls" in kinds) == (choice != "auto"), "a random model writes no tags"


def test_the_clients_stream_parses_arguments(client: Any) -> None:
    tools = [openai.pydantic_function_tool(Pet, name="pet")]
    with client.chat.completions.stream(**CHAT, tools=tools, tool_choice="required") as stream:
        kinds = {event.type for event in stream}
        message = stream.get_final_completion().choices[0].message
    assert "tool_calls.function.arguments.delta" in kinds
    assert isinstance(message.tool_calls[0].function.parsed_arguments, Pet)


def test_responses_call_too(client: Any) -> None:
    response = client.responses.create(
        **RESPONSE, tools=FLAT, tool_choice={"type": "function", "name": "pet"}
    )
    assert response.status == "completed"
    assert [item.type for item in response.output] == ["function_call"] * len(response.output)
    Pet.model_validate_json(response.output[0].arguments)
    assert response.tools[0].name == "pet"
    told = {"type": "function_call_output", "call_id": response.output[0].call_id, "output": "a"}
    items = [{"role": "user", "content": "which pet?"}, *response.output, told]
    again = client.responses.create(**{**RESPONSE, "input": items}, tools=FLAT)
    assert again.usage.input_tokens > response.usage.input_tokens
    tool = openai.pydantic_function_tool(Pet, name="pet")["function"]
    parsed = client.responses.parse(
        **RESPONSE,
        tools=[{"type": "function", **tool}],
        tool_choice="required",
        parallel_tool_calls=False,
    )
    Pet.model_validate(parsed.output[0].parsed_arguments)


def test_long_namespaces_can_be_sent_back() -> None:
    """Servers of MCP make names of them."""
    space = {"type": "namespace", "name": "n" * 130, "tools": FLAT[:1]}
    call = {"type": "function_call", "call_id": "c", "name": "pet", "arguments": "{}"}
    items = [{"role": "user", "content": "a"}, {**call, "namespace": "n" * 130}]
    found = read_fields(Endpoint.RESPONSES, {"input": items, "tools": [space]})
    assert found["input"][1]["namespace"] == found["tools"][0]["name"]


def test_functions_in_namespaces_and_what_only_openai_runs(client: Any) -> None:
    """As Codex asks: the model knows a function by one name, the client by namespace and name."""
    space = {"type": "namespace", "name": "zoo", "description": "animals", "tools": FLAT[:1]}
    asked = {
        **RESPONSE,
        "tools": [FLAT[1], space, {"type": "web_search", "external_web_access": False}],
        "include": ["reasoning.encrypted_content"],
        "truncation": "auto",
        "extra_body": {"client_metadata": {"session_id": "1"}},
    }
    chosen = {"tool_choice": {"type": "function", "name": "zoo__pet"}, "parallel_tool_calls": False}
    response = client.responses.create(**asked, **chosen)
    (call,) = response.output
    assert (call.namespace, call.name) == ("zoo", "pet")
    Pet.model_validate_json(call.arguments)
    assert [tool.type for tool in response.tools] == ["function", "namespace"]
    events = list(client.responses.create(**asked, **chosen, stream=True))
    (begun,) = (each.item for each in events if each.type == "response.output_item.added")
    assert (begun.namespace, begun.name) == ("zoo", "pet")
    assert events[-1].response.output[0].namespace == "zoo"

    def num_tokens(items: list[Any]) -> int:
        counted = client.responses.input_tokens.count(
            model=MODEL, input=items, tools=asked["tools"]
        )
        return int(counted.input_tokens)

    told = call.model_dump(exclude_none=True)
    nameless = {name: value for name, value in told.items() if name != "namespace"}
    assert num_tokens([told]) == num_tokens([nameless]) + len("zoo__")


@pytest.mark.parametrize(
    ("tools", "sentence"),
    [
        ([{"type": "file_search", "vector_store_ids": ["a"]}], "tools[0].type='file_search'"),
        (
            [{"type": "namespace", "name": "a", "tools": [{"type": "custom", "name": "b"}]}],
            "tools[0].tools[0].type='custom'",
        ),
        ([{"type": "namespace", "name": "a", "tools": [named("b")]}, named("a__b")], "two tools"),
    ],
)
def test_other_tools_are_refused(server: Running, tools: Any, sentence: str) -> None:
    answer = server.post(RESPONSES, **RESPONSE, tools=tools)
    assert answer.status_code == 400
    assert sentence in answer.json()["error"]["message"]


@pytest.mark.parametrize("choice", ["auto", "required"])
def test_events_of_a_response(client: Any, choice: str) -> None:
    asked = {**RESPONSE, "temperature": 0, "tools": FLAT, "tool_choice": choice}
    whole = client.responses.create(**asked)
    events = list(client.responses.create(**asked, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    final = events[-1].response
    assert len(final.output) == len(whole.output)
    for idx, (item, same) in enumerate(zip(final.output, whole.output, strict=True)):
        own = [event for event in events if getattr(event, "output_index", None) == idx]
        assert own[0].type == "response.output_item.added"
        assert own[-1].type == "response.output_item.done"
        assert own[-1].item == item
        deltas = "".join(event.delta for event in own if event.type.endswith(".delta"))
        if item.type == "function_call":
            assert deltas == item.arguments == same.arguments
            assert own[0].item.call_id == item.call_id
        else:
            assert deltas == item.content[0].text == same.content[0].text


def test_answers_that_say_nothing_have_a_message(client: Any) -> None:
    """The first token ends the answer; there is still an empty message."""
    end = {"extra_body": {"logit_bias": None, "allowed_token_ids": [0]}}
    asked = {**RESPONSE, "max_output_tokens": 1, "tools": FLAT, **end}
    response = client.responses.create(**asked)
    assert [item.type for item in response.output] == ["message"]
    events = list(client.responses.create(**asked, stream=True))
    assert events[-1].response.output[0].content[0].text == response.output_text


def test_tools_are_counted(server: Running) -> None:
    def num(path: str, **body: Any) -> int:
        answer = server.ask(path, **body)
        return int(answer.get("count", answer.get("input_tokens", 0)))

    more = len("pet other ")
    chat: dict[str, Any] = {"messages": ASKED}
    assert num(TOKENIZE, **chat, tools=TOOLS) == num(TOKENIZE, **chat) + more
    assert num(TOKENIZE, **chat, tools=TOOLS, tool_choice="none") == num(TOKENIZE, **chat)
    counted = "/v1/responses/input_tokens"
    assert num(counted, input="a", tools=FLAT) == num(counted, input="a") + more


def test_words_beside_tools_fit_a_schema(server: Running) -> None:
    """Every answer is either a call or text that fits the schema."""
    wanted = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"enum": ["a", "b"]}}}
    seen = set[str]()
    for seed in range(8):
        asked = {**CHAT, "seed": seed, "tools": TOOLS, "response_format": wanted}
        (choice,) = server.ask(CHATS, **asked)["choices"]
        if choice["message"].get("tool_calls"):
            seen.add("call")
        else:
            seen.add(json.loads(choice["message"]["content"]))
    assert len(seen) > 1


def test_they_have_no_names_that_the_schema_does_not_tell_of(server: Running) -> None:
    schema = {"type": "object", "properties": {"a": {"enum": ["b", "c"]}}}
    wanted = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    for seed in range(8):
        asked = {**CHAT, "seed": seed, "tools": TOOLS, "response_format": wanted}
        (choice,) = server.ask(CHATS, **asked)["choices"]
        if not choice["message"].get("tool_calls"):
            assert json.loads(choice["message"]["content"]).keys() <= {"a"}


def test_a_function_may_bring_nothing(server: Running) -> None:
    function = {"name": "pet", "arguments": '{"kind": "cat"}'}
    call = {"id": "c1", "type": "function", "function": function}
    said = [*ASKED, {"role": "assistant", "tool_calls": [call]}]
    brought = {"role": "tool", "tool_call_id": "c1"}
    counts = [
        server.ask(TOKENIZE, messages=[*said, {**brought, **more}])["count"]
        for more in ({}, {"content": None}, {"content": ""}, {"content": "ab"})
    ]
    assert counts == [counts[0]] * 3 + [counts[0] + 2]


def test_a_call_that_was_cut_off_comes_back(client: Any) -> None:
    """Sent as the client's object, as a dict with all its nulls, and with invalid JSON."""
    asked = {**RESPONSE, "max_output_tokens": 60, "temperature": 0, "tools": FLAT}
    response = client.responses.create(**asked, tool_choice={"type": "function", "name": "pet"})
    assert response.status == "incomplete"
    (item,) = response.output
    assert item.status == "incomplete"
    assert item.arguments
    told = {"type": "function_call_output", "call_id": item.call_id, "output": "cut off"}
    thought = {"type": "reasoning", "id": "r", "summary": []}
    for sent in (item, item.model_dump(), {**item.to_dict(), "arguments": '{"a":' + "[" * 3000}):
        items = [{"role": "user", "content": "which?"}, thought, sent, told]
        again = client.responses.create(**{**RESPONSE, "input": items}, tools=FLAT)
        assert again.usage.input_tokens > 0


def test_a_call_that_has_no_name_yet_is_no_words(server: Running) -> None:
    must = {**CHAT, "tools": TOOLS, "tool_choice": "required"}
    for num in (1, 8, 20):
        (choice,) = server.ask(CHATS, **{**must, "max_tokens": num})["choices"]
        assert choice["finish_reason"] == "length"
        assert not choice["message"]["content"]
        assert "tool_calls" not in choice["message"]


def test_a_stop_string_within_a_call(server: Running) -> None:
    """The call that it cut off must not be run: the finish reason is not `tool_calls`."""
    asked = {**CHAT, "tools": TOOLS, "tool_choice": only("pet"), "stop": ["ages"]}
    (choice,) = server.ask(CHATS, **asked)["choices"]
    assert choice["finish_reason"] == "stop"
    (call,) = choice["message"]["tool_calls"]
    assert call["function"]["arguments"].endswith(', "')
    told = [json.loads(each) for each in server.stream(CHATS, **asked)[:-1]]
    assert told[-1]["choices"][0]["finish_reason"] == "stop"


def test_a_response_repeats_what_was_asked(server: Running) -> None:
    asked = {**RESPONSE, "max_output_tokens": 5, "tools": FLAT, "parallel_tool_calls": False}
    choice = {"type": "function", "name": "other"}
    answer = server.ask(RESPONSES, **asked, tool_choice=choice)
    assert answer["parallel_tool_calls"] is False
    assert answer["tool_choice"] == choice
    assert answer["tools"] == FLAT
    plain = server.ask(RESPONSES, **RESPONSE)
    assert (plain["parallel_tool_calls"], plain["tool_choice"], plain["tools"]) == (
        True,
        "auto",
        [],
    )


def test_all_but_the_last_call_are_complete(client: Any) -> None:
    """In an answer that never ends by itself, only the last call is incomplete."""
    never = {"logit_bias": {str(len(JSON_LETTERS)): -100}, "seed": 1}
    asked = {**RESPONSE, "tools": FLAT, "tool_choice": "required", "extra_body": never}
    response = client.responses.create(**asked)
    assert response.status == "incomplete"
    statuses = [item.status for item in response.output]
    assert len(statuses) > 1
    assert statuses == ["completed"] * (len(statuses) - 1) + ["incomplete"]


ODD = {"type": "object", "properties": {"a": {"not": {}}}}
BAD_FORMAT = {"name": "a", "schema": ODD}


@pytest.mark.parametrize(
    ("path", "more", "field", "sentence"),
    [
        (CHATS, {"tools": [{"a": 1}]}, "tools[0]", "type is missing"),
        (CHATS, {"tools": [{"type": "web_search"}]}, "tools[0]", "others are not supported"),
        (CHATS, {"tools": [nested(named("a b"))]}, "tools", "cannot be called"),
        (CHATS, {"tools": [TOOLS[0], TOOLS[0]]}, "tools", "two tools are called 'pet'"),
        (CHATS, {"tools": [nested(named("a", ODD, strict=True))]}, "tools", "parameters of tool"),
        (CHATS, {"tools": TOOLS, "tool_choice": "any"}, "tool_choice", "'auto' or 'required'"),
        (CHATS, {"tool_choice": "required"}, "tool_choice", "no tools; give some"),
        (
            CHATS,
            {"tools": TOOLS, "tool_choice": only("pat")},
            "tool_choice",
            "did you mean 'pet'",
        ),
        (
            CHATS,
            {"tools": TOOLS, "response_format": {"type": "json_schema", "json_schema": BAD_FORMAT}},
            "response_format",
            "the JSON schema cannot be used",
        ),
        (
            CHATS,
            {"tools": [nested(named("tool_choice", ODD, strict=True))]},
            "tools",
            "parameters of tool 'tool_choice'",
        ),
        (CHATS, {"tools": [nested(named("a", {"multipleOf": True}))] * 2}, "tools", "two tools"),
        (
            CHATS,
            {"tools": TOOLS, "structured_outputs": {"regex": "a"}},
            "structured_outputs",
            "drop one",
        ),
        (RESPONSES, {"tools": TOOLS}, "tools[0]", "name is missing"),
        (RESPONSES, {"tools": [{"type": "mcp"}]}, "tools[0]", "others are not supported"),
        (RESPONSES, {"input": [{"type": "image"}]}, "input[0]", "message or function_call"),
        (CHATS, {"messages": [{"role": "system"}]}, "messages[0]", "content is missing"),
        (CHATS, {"messages": [{"role": "robot"}]}, "messages[0]", "assistant or tool"),
        (
            CHATS,
            {"messages": [{"role": "assistant", "tool_calls": [{"type": "custom"}]}]},
            "messages[0].tool_calls[0]",
            "others are not supported",
        ),
    ],
)
def test_what_cannot_be_called(
    server: Running, path: str, more: Any, field: str | None, sentence: str
) -> None:
    response = server.post(path, **{**(CHAT if path == CHATS else RESPONSE), **more})
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert sentence in error["message"]
    assert error["param"] == field


def test_what_else_is_said_of_a_function_is_passed_over(server: Running) -> None:
    """transformers adds `return`, other clients add notes; names may contain a server's name."""
    notes: dict[str, Any] = {
        "return": {"type": "number"},
        "annotations": {"title": "Pet"},
        "defer_loading": True,
    }
    name = "mcp__" + "server_" * 9 + "pet"
    flat = named(name, **notes)
    for path, body, tools in ((CHATS, CHAT, [nested(flat)]), (RESPONSES, RESPONSE, [flat])):
        length = {key: 120 for key in body if key.startswith("max_")}
        more = {"tools": tools, "tool_choice": "required", "parallel_tool_calls": False}
        assert name in json.dumps(server.ask(path, **{**body, **length, **more}))


def test_turns_that_were_cut_off_and_calls_that_were_made_up_are_told_again(
    server: Running,
) -> None:
    """Agents send back whatever they received, and go on."""
    call = {"id": "1", "type": "function", "function": {"name": "", "arguments": "{"}}
    turns: list[dict[str, Any]] = [
        {"reasoning_content": "hm"},
        {"content": None, "reasoning": "hm"},
        {"content": None},
        {},
        {"content": None, "tool_calls": [call]},
    ]
    for turn in turns:
        messages = [*ASKED, {"role": "assistant", **turn}, *ASKED]
        server.ask(CHATS, **{**CHAT, "messages": messages, "max_tokens": 2})
