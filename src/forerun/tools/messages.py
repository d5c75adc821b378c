"""A conversation with tools in it, as a chat template takes it."""

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
    """Clients send the arguments of calls as text, and templates write JSON themselves."""
    return list(map(_with_values, messages))


def in_words(messages: Messages, tools: Sequence[Tool], form: CallFormat) -> Messages:
    """For a template that knows no tools: the first message tells of them."""
    plain = [_in_words(message, form) for message in messages]
    if not tools:
        return plain
    introduction = _introduction(tools, form)
    if not plain or plain[0].get("role") != "system":
        return [{"role": "system", "content": introduction}, *plain]
    text = f"{content_text(plain[0])}\n\n{introduction}"
    return [{**plain[0], "content": text}, *plain[1:]]


def _with_values(message: Mapping[str, Any]) -> dict[str, Any]:
    calls = message.get("tool_calls")
    if not calls:
        return dict(message)
    found = []
    for call in calls:
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise InvalidOption(f"{reprlib.repr(call)} is no call of a tool; send it as it came.")
        values = _values(function)
        found.append({**call, "function": {**function, "arguments": values}})
    return {**message, "content": message.get("content") or "", "tool_calls": found}


def _values(function: Mapping[str, Any]) -> Mapping[str, Any]:
    given = function.get("arguments")
    try:
        found = json.loads(given or "{}") if isinstance(given, str | None) else given
    except ValueError:
        found = None
    if not isinstance(found, Mapping):
        raise InvalidOption(
            f"the arguments of a call of {function['name']!r} are no JSON object; send them as "
            f"they came."
        )
    return found


def _in_words(message: Mapping[str, Any], form: CallFormat) -> dict[str, Any]:
    """Calls as the model writes them, and what tools said as what a user says."""
    if message.get("role") == "tool":
        content = message.get("content")
        text = content if isinstance(content, str) else content_text({"content": content})
        return {"role": "user", "content": f"<tool_response>\n{text}\n</tool_response>"}
    calls = message.get("tool_calls")
    if not calls:
        return dict(message)
    functions = [call["function"] for call in calls]
    pairs = [(each["name"], json.dumps(each["arguments"])) for each in functions]
    words = content_text(message)
    text = f"{words}\n{form.written(pairs)}" if words else form.written(pairs)
    return {"role": message["role"], "content": text}


def _introduction(tools: Sequence[Tool], form: CallFormat) -> str:
    lines = "\n".join(json.dumps(tool.as_dict(), ensure_ascii=False) for tool in tools)
    return _INTRODUCTION.format(tools=lines, example=form.written([("NAME", '{"KEY": VALUE}')]))
