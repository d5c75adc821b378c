"""The list of request fields: what is read, what is refused, and what the docs say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from forerun.server.errors import ApiError
from forerun.server.fields import FIELDS, Endpoint, Treatment, markdown, read_fields

PROMPT = {"prompt": "a"}
CHAT = {"messages": [{"role": "user", "content": "a"}]}

BODIES: dict[Endpoint, dict[str, Any]] = {
    Endpoint.COMPLETIONS: PROMPT,
    Endpoint.CHAT: CHAT,
    Endpoint.RESPONSES: {"input": "a"},
    Endpoint.INPUT_TOKENS: {},
    Endpoint.MESSAGES: {**CHAT, "max_tokens": 1},
    Endpoint.COUNT_TOKENS: CHAT,
}


def refused(endpoint: Endpoint, body: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        read_fields(endpoint, body)
    assert caught.value.status == 400
    assert caught.value.message.endswith((".", "?"))
    return caught.value


def test_no_field_is_listed_twice_for_an_endpoint() -> None:
    seen = [(field.name, endpoint) for field in FIELDS for endpoint in field.on]
    assert len(seen) == len(set(seen))


def test_only_honoured_fields_are_read_and_null_is_nothing() -> None:
    body = {**PROMPT, "user": "me", "seed": None, "top_k": 4.0, "best_of": 1}
    assert read_fields(Endpoint.COMPLETIONS, body) == {"prompt": "a", "top_k": 4}


def test_every_refused_field_answers_400_and_names_itself() -> None:
    found = 0
    for field in FIELDS:
        for endpoint in field.on:
            if field.treatment is Treatment.REFUSED:
                found += 1
                error = refused(endpoint, {**BODIES[endpoint], field.name: {"surely": "not"}})
                assert (error.param, error.code) == (field.name, field.code)
    assert found > 40
    error = refused(Endpoint.RESPONSES, {"input": "a", "previous_response_id": "resp_1"})
    assert error.code == "previous_response_not_found", "at which clients send all again"


def test_unknown_fields_point_at_the_nearest_and_may_be_ignored() -> None:
    error = refused(Endpoint.CHAT, {**CHAT, "max_token": 3})
    assert "did you mean 'max_tokens'?" in error.message
    assert read_fields(Endpoint.CHAT, {**CHAT, "max_token": 3}, lenient=True) == CHAT
    assert "--lenient-fields" in error.message
    body = {**CHAT, "stream_options": {"include_usages": True}}
    assert "stream_options.include_usage'?" in refused(Endpoint.CHAT, body).message
    assert read_fields(Endpoint.CHAT, body, lenient=True) == {**CHAT, "stream_options": {}}


def test_another_endpoints_word_points_at_this_ones() -> None:
    for endpoint, body, part in (
        (Endpoint.RESPONSES, {"input": "a", "max_tokens": 3}, "did you mean 'max_output_tokens'?"),
        (Endpoint.RESPONSES, {"messages": []}, "valid: input."),
        (Endpoint.COMPLETIONS, {"messages": []}, "valid: prompt."),
        (Endpoint.COMPLETIONS, {**PROMPT, "max_output_tokens": 3}, "'max_tokens'?"),
        (Endpoint.CHAT, {"input": "a"}, "valid: messages."),
        (Endpoint.CHAT, {**CHAT, "grammar": "a"}, "valid: structured_outputs."),
        (Endpoint.CHAT, {**CHAT, "n_predict": 3}, "valid: max_completion_tokens, max_tokens."),
        (Endpoint.CHAT, {**CHAT, "enable_thinking": True}, "valid: chat_template_kwargs."),
    ):
        assert part in refused(endpoint, body).message


def test_what_is_refused_is_recommended_to_nobody() -> None:
    listed = refused(Endpoint.CHAT, {**CHAT, "zzz": 1}).message.split("valid: ")[1]
    names = listed.split(".")[0].split(", ")
    refusals = {field.name for field in FIELDS if field.treatment is Treatment.REFUSED}
    honoured = {field.name for field in FIELDS if field.treatment is not Treatment.REFUSED}
    assert set(names) & refusals <= honoured
    assert "guided_grammar" not in names
    assert "messages" in names


def test_ids_are_read_one_by_one_where_they_are_not_plain() -> None:
    ids = list(range(100))
    for given in (ids, [*ids[:-1], 99.0]):
        assert read_fields(Endpoint.DETOKENIZE, {"tokens": given})["tokens"] == ids
    for odd in (True, "99", 2**31, -1, 0.5, None):
        error = refused(Endpoint.DETOKENIZE, {"tokens": [*ids[:-1], odd]})
        assert error.message.startswith("tokens[99]=")


def test_answers_of_other_servers_can_be_sent_back() -> None:
    """Their extra keys are ignored as long as the values are empty."""
    more: dict[str, Any] = {"reasoning_content": None, "tool_calls": [], "parsed": None}
    message: dict[str, Any] = {"role": "assistant", "content": "a", **more}
    body = {"messages": [*CHAT["messages"], message]}
    read = read_fields(Endpoint.CHAT, body)["messages"][1]
    assert (read["role"], read["content"]) == ("assistant", "a")
    message["refusal"] = "no"
    assert "refusal" in refused(Endpoint.CHAT, body).message


def test_what_clients_say_within_messages_is_passed_over() -> None:
    """Extra keys of LiteLLM, OpenAI's agents SDK and prompt caches, meant for other servers."""
    more: dict[str, Any] = {"cache_control": {"type": "x"}, "provider_specific_fields": {}}
    part: dict[str, Any] = {"type": "text", "text": "a"}
    function = {"name": "f", "arguments": "{}"}
    call: dict[str, Any] = {"id": "a", "type": "function", "function": function}
    plain = {"role": "assistant", "content": [part], "tool_calls": [call]}
    rich = {
        **plain,
        **more,
        "content": [{**part, **more, "role": "assistant"}],
        "tool_calls": [{**call, **more, "function": {**function, "parsed": 1}}],
    }
    assert read_fields(Endpoint.CHAT, {"messages": [rich]})["messages"] == [plain]
    part = {**part, "type": "input_text"}
    item = {"type": "message", "role": "user", "content": [part]}
    rich = {**item, **more, "content": [{**part, **more}]}
    assert read_fields(Endpoint.RESPONSES, {"input": [rich]})["input"] == [item]


def test_what_is_stored_elsewhere_is_asked_for() -> None:
    error = refused(Endpoint.RESPONSES, {"input": [{"type": "item_reference", "id": "msg_1"}]})
    assert error.message.startswith("input[0].type='item_reference' is not allowed; nothing is")


@pytest.mark.parametrize(
    ("name", "value", "part"),
    [
        ("temperature", "hot", "a number from 0"),
        ("temperature", True, "a number from 0"),
        ("temperature", float("inf"), "a number from 0"),
        ("top_p", 0, "above 0"),
        ("n", 1.5, "a whole number"),
        ("n", 10**400, "a whole number"),
        ("seed", 2**64, "a whole number"),
        ("stop", [""], "1 to 1000 characters"),
        ("stop", "", "1 to 1000 characters"),
        ("logit_bias", {"x": 1}, "has the key"),
        ("logit_bias", {"5": 1000}, "a number from -100"),
        ("stream_options", {"include_usages": True}, "stream_options.include_usage"),
        ("prediction", {"type": "content"}, "prediction.content is missing"),
        ("speculative", {"method": 3}, "a text of 1 to 64"),
        ("speculative", 3, "false, or an object"),
        ("speculative", {"acceptance": "lenient"}, "coupled"),
        ("user", "\ud800", "half a surrogate pair"),
        ("messages", [{"role": "user", "content": [{"type": "image_url"}]}], "parts of type"),
        ("messages", [{"role": "robot", "content": "x"}], "system, developer, user"),
        ("messages", [{"role": "tool", "content": 5}], "messages[0].content=5"),
        ("messages", [{"role": "user", "tool_calls": [{}], "content": ""}], "calls no tools"),
        ("messages", [{"role": "user"}], "messages[0].content is missing"),
        ("messages", [], "1 to 4096 items"),
    ],
)
def test_values_of_the_wrong_kind(name: str, value: Any, part: str) -> None:
    assert part in refused(Endpoint.CHAT, {**CHAT, name: value}).message


def test_the_docs_have_the_table_that_the_command_prints() -> None:
    docs = Path(__file__).parents[3] / "docs" / "serving.md"
    assert markdown() in docs.read_text(encoding="utf-8")
