"""Models that reason before they answer, over HTTP: with OpenAI's own client and without."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai as typed_openai
import pytest

from tests.server.serving import MODEL, Running, serving
from tests.tiny_model import EOS, JSON_LETTERS

openai: Any = typed_openai  # its overloads know only OpenAI's models
CHATS, RESPONSES, TOKENIZE = "/v1/chat/completions", "/v1/responses", "/tokenize"
# As Qwen's: the model opens its reasoning, or the template closes it at once; `begin` opens it.
TEMPLATE = (
    "{% for t in tools or [] %}{{ t.function.name }}\n{% endfor %}"
    "{% for m in messages %}{{ m.role[0] }}: {% if m.reasoning_content %}<think>"
    "{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}a: {% if enable_thinking is false %}<think>\n\n</think>\n\n"
    "{% elif begin %}<think>\n{% endif %}{% endif %}"
)
OPEN, CLOSE = len(JSON_LETTERS), len(JSON_LETTERS) + 1
ASKED = [{"role": "user", "content": "which pet?"}]
OFTEN = {str(OPEN): 3, str(CLOSE): 4}
CHAT: dict[str, Any] = {"model": MODEL, "messages": ASKED, "max_tokens": 60, "logit_bias": OFTEN}
BEGUN = {"chat_template_kwargs": {"begin": True}}
ANIMAL = {"enum": ["cat", "canary"]}
PET = {
    "type": "object",
    "properties": {"pet": ANIMAL},
    "required": ["pet"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "pet", "schema": PET}}
TOOL = {"type": "function", "function": {"name": "feed", "parameters": PET}}
THINKS = {"temperature": 0, "logit_bias": {str(OPEN): 60}}  # and never stops reasoning
SAYS_SO = {"chat_template_kwargs": {"begin": True}, "temperature": 0}
CLOSES = {**SAYS_SO, "logit_bias": {str(CLOSE): 60}}  # its reasoning at once


@pytest.fixture(scope="module")
def server(
    tiny_reasoning_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    template = tmp_path_factory.mktemp("templates") / "chat.jinja"
    template.write_text(TEMPLATE)
    fixed = '{"method": "suffix", "adaptive": false}'  # independent of this machine's speed
    options = ("--kernels", "reference", "--speculative-config", fixed)
    more = ("--chat-template", str(template), "--tool-call-parser", "hermes")
    with serving(tiny_reasoning_path, *options, *more) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Running) -> Iterator[Any]:
    options = {"api_key": "any", "max_retries": 0, "_strict_response_validation": True}
    with openai.OpenAI(base_url=f"{server.url}/v1", **options) as found:
        yield found


def said(server: Running, **asked: Any) -> tuple[str | None, str]:
    """Return the reasoning and the content of the answer."""
    message = server.ask(CHATS, **{**CHAT, **asked})["choices"][0]["message"]
    assert message.get("reasoning") == message.get("reasoning_content")
    return message.get("reasoning"), message["content"]


def spelled(server: Running, tokens: list[int]) -> str:
    found: str = server.ask("/detokenize", tokens=tokens)["prompt"]
    return found


@pytest.mark.parametrize("more", [{}, BEGUN, {"tools": [TOOL], **BEGUN}], ids=str)
def test_a_stream_tells_the_same(server: Running, more: dict[str, Any]) -> None:
    kinds = set[tuple[bool, bool]]()
    for seed in range(6):
        asked = {**CHAT, **more, "seed": seed, "n": 2, "return_token_ids": True}
        whole = server.ask(CHATS, **asked)
        plain = server.ask(CHATS, **asked, speculative=False)
        raw = [spelled(server, choice["token_ids"]) for choice in whole["choices"]]
        chunks = [json.loads(each) for each in server.stream(CHATS, **asked)[:-1]]
        for one in whole["choices"]:
            deltas = [
                choice["delta"]
                for chunk in chunks
                for choice in chunk["choices"]
                if choice["index"] == one["index"]
            ]
            told = {
                name: "".join(delta.get(name) or "" for delta in deltas)
                for name in ("reasoning", "reasoning_content", "content")
            }
            message = one["message"]
            assert told["reasoning"] == told["reasoning_content"] == message.get("reasoning", "")
            assert told["content"] == message["content"]
            assert message == plain["choices"][one["index"]]["message"]
            order = [bool(d.get("content")) for d in deltas if d.get("content") or "reasoning" in d]
            assert order == sorted(order), "one, then the other"
            kinds.add((bool(message.get("reasoning")), bool(message["content"])))
            text = raw[one["index"]].removeprefix("<think>")
            if message.get("reasoning"):
                assert text.lstrip().startswith(message["reasoning"])
    assert (True, True) in kinds
    assert (False, True) in kinds or "chat_template_kwargs" in more, "not all open it"


def test_it_can_be_left_out_or_left_in(server: Running) -> None:
    asked = {**CHAT, **BEGUN, "seed": 3}
    reasoning, words = said(server, **asked)
    assert reasoning
    assert said(server, **asked, include_reasoning=False) == (None, words)
    left_in = server.stream(CHATS, **asked, include_reasoning=False)[:-1]
    assert not any("reasoning" in c["delta"] for e in left_in for c in json.loads(e)["choices"])
    nothing, raw = said(server, **asked, reasoning_format="none")
    assert nothing is None
    before, _, behind = raw.partition("</think>")
    assert (before.strip(), behind.lstrip()) == (reasoning, words)
    told = server.post(CHATS, **asked, tools=[TOOL], reasoning_format="none")
    assert told.status_code == 400
    assert told.json()["error"]["param"] == "reasoning_format"


def test_its_tokens_are_counted(server: Running) -> None:
    for seed in range(4):
        answer = server.ask(CHATS, **CHAT, **BEGUN, seed=seed, return_token_ids=True)
        tokens, usage = answer["choices"][0]["token_ids"], answer["usage"]
        num = usage["completion_tokens_details"]["reasoning_tokens"]
        words = answer["choices"][0]["message"]["content"]
        assert spelled(server, tokens[num:]).removesuffix(EOS) == words
    usage = server.ask(CHATS, **{**CHAT, **THINKS})["usage"]
    assert usage["completion_tokens_details"]["reasoning_tokens"] == CHAT["max_tokens"]
    kwargs = {"enable_thinking": False}
    usage = server.ask(CHATS, **CHAT, chat_template_kwargs=kwargs)["usage"]
    assert usage["completion_tokens_details"]["reasoning_tokens"] == 0


@pytest.mark.parametrize(
    "asked", [{"response_format": FORMAT}, {"structured_outputs": {"json": PET}}]
)
def test_what_is_asked_for_comes_behind_it(server: Running, asked: dict[str, Any]) -> None:
    reasoning, words = said(server, **CLOSES, **asked)
    assert reasoning is None
    assert json.loads(words)["pet"] in ANIMAL["enum"]
    for seed in range(4):
        reasoning, words = said(server, **asked, seed=seed, max_tokens=200)
        assert json.loads(words)["pet"] in ANIMAL["enum"], "with reasoning, or without"
    reasoning, words = said(server, **THINKS, **asked)
    assert reasoning
    assert words == "", "it was cut off before"
    closed = {"chat_template_kwargs": {"enable_thinking": False}, "logit_bias": {str(OPEN): 60}}
    reasoning, words = said(server, **closed, **asked, max_tokens=200)
    assert reasoning is None
    assert json.loads(words)["pet"] in ANIMAL["enum"]


def test_calls_come_behind_it(server: Running) -> None:
    answer = server.ask(CHATS, **{**CHAT, **CLOSES}, tools=[TOOL], tool_choice="required")
    (choice,) = answer["choices"]
    assert choice["finish_reason"] in ("tool_calls", "length")
    assert choice["message"]["tool_calls"][0]["function"]["name"] == "feed"
    begun = server.ask(CHATS, **{**CHAT, **THINKS}, tools=[TOOL], tool_choice="required")
    assert begun["choices"][0]["message"]["reasoning"]
    assert "tool_calls" not in begun["choices"][0]["message"]


def test_effort(server: Running) -> None:
    def prompt(**asked: Any) -> str:
        return spelled(server, server.ask(TOKENIZE, messages=ASKED, **asked)["tokens"])

    none = prompt(reasoning_effort="none")
    assert none.endswith("<think>\n\n</think>\n\n")
    assert prompt(reasoning_effort="low") == prompt()
    own = {"enable_thinking": True}
    assert prompt(reasoning_effort="none", chat_template_kwargs=own) == prompt(), "said twice"
    num = len(server.ask(TOKENIZE, messages=ASKED, reasoning_effort="none")["tokens"])
    assert server.ask(CHATS, **CHAT, reasoning_effort="none")["usage"]["prompt_tokens"] == num
    asked = {"model": MODEL, "input": "which pet?", "reasoning": {"effort": "none"}}
    assert server.ask("/v1/responses/input_tokens", **asked)["input_tokens"] == num
    response = server.ask(RESPONSES, **asked, max_output_tokens=4)
    assert response["usage"]["input_tokens"] == num
    assert response["reasoning"]["effort"] == "none"


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_it_goes_back_as_it_came(server: Running, name: str) -> None:
    messages = [*ASKED, {"role": "assistant", "content": "cat", name: "cats purr"}, *ASKED]
    prompt = spelled(server, server.ask(TOKENIZE, messages=messages)["tokens"])
    assert "a: <think>cats purr</think>cat\n" in prompt
    refused = server.post(TOKENIZE, messages=[{"role": "user", "content": "a", name: "b"}])
    assert refused.status_code == 400


def test_responses_have_items_of_it(client: Any, server: Running) -> None:
    asked: dict[str, Any] = {"model": MODEL, "input": "which pet?", "max_output_tokens": 60}
    bias = {str(OPEN): 10, str(CLOSE): 8}
    kinds = set[tuple[str, ...]]()
    for seed in range(5):
        options = {"extra_body": {"logit_bias": bias, "seed": seed}}
        whole = client.responses.create(**asked, **options)
        with client.responses.stream(**asked, **options) as stream:
            events = list(stream)
        final = events[-1].response
        assert final.output_text == whole.output_text
        assert [item.type for item in final.output] == [item.type for item in whole.output]
        kinds.add(tuple(item.type for item in whole.output))
        first, told = (
            whole.output[0],
            [e for e in events if e.type.startswith("response.reasoning")],
        )
        assert first.type == "reasoning"
        text = first.content[0].text
        assert "".join(e.delta for e in told if e.type.endswith("delta")) == text == told[-1].text
        assert final.output[0].content[0].text == text
        assert whole.usage.output_tokens_details.reasoning_tokens > 0
        again = [{"role": "user", "content": "which pet?"}, *whole.output]
        count = server.ask(
            "/v1/responses/input_tokens",
            model=MODEL,
            input=[each if isinstance(each, dict) else each.model_dump() for each in again],
        )
        shown = f"u: which pet?\na: <think>{text}</think>{whole.output_text}\na: "
        if len(whole.output) == 2:
            expected = server.ask(TOKENIZE, prompt=shown, add_special_tokens=False)["count"]
            assert count["input_tokens"] == expected
    assert ("reasoning", "message") in kinds


def test_a_response_that_is_cut_off_in_it(server: Running) -> None:
    asked = {"model": MODEL, "input": "which pet?", "max_output_tokens": 9, **THINKS}
    whole = server.ask(RESPONSES, **asked)
    assert [(item["type"], item["status"]) for item in whole["output"]] == [
        ("reasoning", "incomplete")
    ]
    last = json.loads(server.stream(RESPONSES, **asked)[-1])
    assert last["type"] == "response.incomplete"
    assert last["response"]["output"] == [
        {**whole["output"][0], "id": last["response"]["output"][0]["id"]}
    ]


def test_chances_in_responses_are_of_words(server: Running) -> None:
    bias = {str(OPEN): 10, str(CLOSE): 8}
    more = {"logit_bias": bias, "top_logprobs": 1, "seed": 1, "ignore_eos": True}
    asked = {"model": MODEL, "input": "which pet?", "max_output_tokens": 60, **more}
    whole = server.ask(RESPONSES, **asked)
    words = whole["output"][-1]["content"][0]
    spelled_out = b"".join(bytes(each["bytes"]) for each in words["logprobs"]).decode()
    assert words["text"]
    assert spelled_out == words["text"]
    events = [json.loads(each) for each in server.stream(RESPONSES, **asked)]
    told = [
        one for e in events if e["type"] == "response.output_text.delta" for one in e["logprobs"]
    ]
    assert told == words["logprobs"]
