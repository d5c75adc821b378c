"""Translates the fields of Anthropic's messages to those of chat."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

from forerun.server.errors import bad_request

Given = Mapping[str, Any]
_ALIKE: Final = {"auto": "auto", "any": "required", "none": "none"}


def as_chat(given: Given) -> dict[str, Any]:
    """Return the fields under chat's names. If the last message is the assistant's, the answer
    continues it."""
    found = dict(given)
    found["messages"] = list(_conversation(given))
    last = found["messages"][-1]
    if last["role"] == "assistant":
        if "tool_calls" in last:
            raise bad_request("messages end with a tool_use; send its tool_result.", "messages")
        if "format" in given.get("output_config", {}):
            raise bad_request(
                "output_config.format cannot go with words that the assistant began; drop one.",
                "output_config.format",
            )
        found["continue_final_message"] = True
    if "stop_sequences" in given:
        found["stop"] = given["stop_sequences"]
    found["tools"] = [_tool(one) for one in given.get("tools", ()) if "input_schema" in one]
    choice = given.get("tool_choice", {"type": "auto"})
    if given.get("tools") and not found["tools"] and choice["type"] in ("any", "tool"):
        kinds = ", ".join(tool["type"] for tool in given["tools"])
        raise bad_request(
            f"{kinds}: Anthropic runs that, and nobody here; give a function.", "tools"
        )
    if choice["type"] == "tool":
        found["tool_choice"] = {"type": "function", "function": {"name": choice["name"]}}
    else:
        found["tool_choice"] = _ALIKE[choice["type"]]
    found["parallel_tool_calls"] = not choice.get("disable_parallel_tool_use", False)
    return found | _thinking(given)


def _thinking(given: Given) -> dict[str, Any]:
    """Return whether and how much to reason, for chat templates that read it."""
    kind = given.get("thinking", {}).get("type")
    if kind == "disabled":
        return {"reasoning_effort": "none"}
    found: dict[str, Any] = {}
    if effort := given.get("output_config", {}).get("effort"):
        found["reasoning_effort"] = effort
    if kind is not None:
        own = given.get("chat_template_kwargs", {})
        found["chat_template_kwargs"] = {"enable_thinking": True, **own}
    return found


def _tool(given: Given) -> dict[str, Any]:
    function = {name: given[name] for name in ("name", "description", "strict") if name in given}
    return {"type": "function", "function": {**function, "parameters": given["input_schema"]}}


def _conversation(given: Given) -> Iterator[dict[str, Any]]:
    """Yield the messages for chat; consecutive ones of one role are merged."""
    said = given.get("system")
    first = [{"role": "system", "content": said}] if said else []
    for role, messages in groupby([*first, *given["messages"]], itemgetter("role")):
        blocks = [block for message in messages for block in _blocks(message["content"])]
        if role == "assistant":
            yield _of_assistant(blocks)
            continue
        for kind, run in groupby(blocks, itemgetter("type")):
            if kind == "tool_result":
                yield from map(_of_tool, run)
            else:
                yield {"role": role, "content": list(run)}


def _blocks(content: str | Sequence[Given]) -> Sequence[Given]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _of_tool(block: Given) -> dict[str, Any]:
    """Return a tool's result as a message; some tools return nothing."""
    content = block.get("content", "")
    return {"role": "tool", "tool_call_id": block["tool_use_id"], "content": content}


def _of_assistant(blocks: Sequence[Given]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": list(_of_type("text", blocks))}
    thoughts = "".join(block["thinking"] for block in _of_type("thinking", blocks))
    calls = [
        {
            "id": block["id"],
            "type": "function",
            "function": {"name": block["name"], "arguments": json.dumps(block["input"])},
        }
        for block in _of_type("tool_use", blocks)
    ]
    if thoughts:
        message["reasoning"] = thoughts
    if calls:
        message["tool_calls"] = calls
    return message


def _of_type(kind: str, blocks: Iterable[Given]) -> Iterator[Given]:
    return (block for block in blocks if block["type"] == kind)
