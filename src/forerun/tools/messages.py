"""Rewrites conversations that contain calls of tools for chat templates."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from forerun.errors import InvalidOption
from forerun.models.text.chat_template import Messages, content_text
from forerun.tools.formats import CallFormat
from forerun.tools.tool import Tool

_INTRODUCTION: Final = (
    "You can call functions. Each line between <tools> and </tools> describes one as JSON:\n"
    "<tools>\n{tools}\n</tools>\n"
    "To call one, answer with its name and its arguments as JSON, in this form:\n{example}"
)


def with_values(messages: Messages) -> Messages:
    """Parse the arguments of calls: clients send JSON text, and templates write the JSON."""
    return list(map(_with_values, messages))


def in_words(messages: Messages, tools: Sequence[Tool], form: CallFormat, role: str) -> Messages:
    """Rewrite a conversation for a template without tools.

    The first message, of `role`, describes the tools; results become messages of the user."""
    plain: list[Mapping[str, Any]] = []
    for message in messages:
        told = _in_words(message, form)
        if message.get("role") == "tool" and plain and plain[-1].get("role") == "tools":
            text = f"{plain[-1]['content']}\n{told['content']}"
            plain[-1] = {**plain[-1], "content": text}
        else:
            plain.append(told)
    plain = [{**m, "role": "user"} if m.get("role") == "tools" else m for m in plain]
    if not tools:
        return plain
    introduction = _introduction(tools, form)
    if not plain or plain[0].get("role") != role:
        return [{"role": role, "content": introduction}, *plain]
    said = content_text(plain[0])
    parts = (said, introduction) if role == "system" else (introduction, said)
    return [{**plain[0], "content": "\n\n".join(parts)}, *plain[1:]]


def _with_values(message: Mapping[str, Any]) -> dict[str, Any]:
    calls = message.get("tool_calls")
    if not calls:
        return dict(message)
    if not isinstance(calls, list | tuple):
        raise InvalidOption(f"tool_calls={reprlib.repr(calls)} is no list; send them as they came.")
    found = []
    for call in calls:
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise InvalidOption(f"{reprlib.repr(call)} is no call of a tool; send it as it came.")
        values = _values(function)
        found.append({**call, "function": {**function, "arguments": values}})
    return {**message, "content": message.get("content") or "", "tool_calls": found}


def _values(function: Mapping[str, Any]) -> Mapping[str, Any] | str:
    """Return a call's arguments, or their text if it is no JSON object, as when it was cut off."""
    given = function.get("arguments") or {}
    if isinstance(given, Mapping):
        return given
    if not isinstance(given, str):
        raise InvalidOption(
            f"the arguments of a call of {function['name']!r} are neither a text nor an object; "
            f"send them as they came."
        )
    try:
        found = json.loads(given)
        json.dumps(found)  # templates write it; too deep nesting fails here
    except (ValueError, RecursionError):
        return given
    return found if isinstance(found, Mapping) else given


def _in_words(message: Mapping[str, Any], form: CallFormat) -> dict[str, Any]:
    """Return the message as plain text: calls as the model writes them, results within tags."""
    if message.get("role") == "tool":
        content = message.get("content")
        text = content if isinstance(content, str) else content_text({"content": content})
        return {"role": "tools", "content": f"<tool_response>\n{text}\n</tool_response>"}
    calls = message.get("tool_calls")
    if not calls:
        return dict(message)
    functions = [call["function"] for call in calls]
    pairs = [(each["name"], _as_text(each["arguments"])) for each in functions]
    words = content_text({"role": "assistant", **message})
    text = f"{words}\n{form.written(pairs)}" if words else form.written(pairs)
    return {"role": message.get("role"), "content": text}


def _as_text(arguments: Mapping[str, Any] | str) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def _introduction(tools: Sequence[Tool], form: CallFormat) -> str:
    lines = "\n".join(json.dumps(tool.as_dict(), ensure_ascii=False) for tool in tools)
    return _INTRODUCTION.format(tools=lines, example=form.written([("NAME", '{"KEY": VALUE}')]))
