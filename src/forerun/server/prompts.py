"""Turns a client's prompts, conversations and items into token ids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from forerun.engine.api.async_engine import AsyncEngine
from forerun.errors import PromptTooLong
from forerun.models.text.chat_template import content_text
from forerun.models.text.conversation import checked_variables, effort_variables
from forerun.replies import ReplyForm
from forerun.server.errors import bad_request
from forerun.server.namespaces import joined
from forerun.tools import Calling

Tokens = tuple[int, ...]
_LONGEST_TOKEN: Final = 256  # characters; texts of more than this per token of context are refused


def listed(given: Any) -> list[str | list[int]]:
    """Return the prompts, one or several, each as text or token ids."""
    return given if isinstance(given, list) and not isinstance(given[0], int) else [given]


def as_tokens(given: str | list[int], engine: AsyncEngine, *, add_special: bool) -> Tokens:
    if isinstance(given, str):
        return encoded(given, engine, add_special=add_special)
    return tuple(given)


def encoded(text: str, engine: AsyncEngine, *, add_special: bool) -> Tokens:
    _refuse_endless(len(text), engine.max_model_len)
    return tuple(engine.tokenizer.encode(text, add_special=add_special))


def chat_prompt(
    given: Mapping[str, Any],
    engine: AsyncEngine,
    calling: Calling | None = None,
    effort: str | None = None,
) -> tuple[Tokens, ReplyForm]:
    """Return the prompt that the chat template makes, and the form of the reply.

    With `continue_final_message` the prompt leaves the last message open."""
    messages = [_message(message) for message in given["messages"]]
    _refuse_endless(sum(len(m["content"]) for m in messages), engine.max_model_len)
    asked = engine.conversations.ask(
        messages,
        calling,
        {
            **effort_variables(engine.tokenizer, effort),
            **checked_variables(given.get("chat_template_kwargs")),
        },
        add_generation_prompt=given.get("add_generation_prompt"),
        continue_final_message=given.get("continue_final_message", False),
    )
    add_special = given.get("add_special_tokens", False)
    tokens = tuple(engine.tokenizer.encode(asked.text, add_special=add_special))
    if not tokens:
        raise bad_request("the chat template made an empty prompt of the messages; say something.")
    return tokens, asked.form


def conversation(given: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the instructions and input items of a response as messages."""
    found = given.get("input", [])
    messages: list[dict[str, Any]] = []
    if given.get("instructions"):
        messages.append({"role": "system", "content": given["instructions"]})
    if isinstance(found, str):
        return [*messages, {"role": "user", "content": found}]
    reasoned: dict[str, str] = {}  # the assistant's, for its next message
    for item in found:
        kind = item.get("type", "message")
        if kind == "reasoning":
            parts = [part["text"] for part in item.get("content", ())]
            reasoned = {"reasoning": "".join(parts)} if parts else {}
            continue
        if kind == "function_call_output":
            said = {"role": "tool", "content": item["output"], "tool_call_id": item["call_id"]}
            messages.append(said)
        elif kind == "function_call":
            name = joined(item["name"], item.get("namespace"))
            function = {"name": name, "arguments": item["arguments"]}
            call = {"id": item["call_id"], "type": "function", "function": function}
            if reasoned or not messages or messages[-1]["role"] != "assistant":
                messages.append({"role": "assistant", "content": "", **reasoned})
            said = messages[-1]
            messages[-1] = {**said, "tool_calls": [*said.get("tool_calls", ()), call]}
        else:
            is_reasoned = item["role"] == "assistant"
            messages.append({**item, **reasoned} if is_reasoned else item)
        reasoned = {}
    return messages


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message for the chat template. The assistant's may be empty, as when it was cut off
    while it reasoned."""
    role, calls = message["role"], message.get("tool_calls")
    content = content_text({"role": role, "content": message.get("content", "")})
    found = {"role": "system" if role == "developer" else role, "content": content}
    for name in ("name", "tool_call_id"):
        if name in message:
            found[name] = message[name]
    if reasoning := message.get("reasoning") or message.get("reasoning_content"):
        found |= {"reasoning": reasoning, "reasoning_content": reasoning}  # templates read either
    return {**found, "tool_calls": calls} if calls else found


def truncated(tokens: Tokens, num_kept: int | None, max_model_len: int, room: int) -> Tokens:
    """Keep the last `num_kept` tokens (`truncate_prompt_tokens`); -1 leaves `room` for the answer,
    None keeps all."""
    if num_kept is None:
        return tokens
    if num_kept == 0:
        raise bad_request(
            "truncate_prompt_tokens=0 leaves no prompt; give 1 or more, or -1.",
            "truncate_prompt_tokens",
        )
    if num_kept < 0:
        num_kept = max(1, max_model_len - max(1, room))
    return tokens[-num_kept:]


def _refuse_endless(num_chars: int, max_model_len: int) -> None:
    """Refuse a text that is too long for any context, before time is spent on it."""
    if num_chars > _LONGEST_TOKEN * max_model_len:
        raise PromptTooLong(
            f"this model's maximum context length is {max_model_len} tokens, and the prompt has "
            f"{num_chars} characters; shorten it."
        )
