"""What an answer may call, from the fields of each API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forerun.engine.api.async_engine import AsyncEngine
from forerun.errors import InvalidGrammar, InvalidOption, InvalidTemplate, InvalidToolChoice
from forerun.server.errors import bad_request
from forerun.server.namespaces import functions
from forerun.server.structured import structure_of
from forerun.tools import Calling


def calling_of(given: Mapping[str, Any], engine: AsyncEngine) -> Calling | None:
    """Return what the answer may call by `tools` and `tool_choice`; None if nothing."""
    tools = list(map(_nested, functions(given.get("tools", ()))))
    field, answer = structure_of(given)
    try:
        if tools and answer is not None:
            engine.toolbox.check(answer)
    except InvalidGrammar as error:
        raise bad_request(str(error), field) from None
    repeats = given.get("parallel_tool_calls")
    try:
        return engine.toolbox.calling(tools, given.get("tool_choice"), repeats, answer)
    except InvalidToolChoice as error:
        raise bad_request(str(error), "tool_choice") from None
    except (InvalidOption, InvalidTemplate) as error:
        is_answer = str(error).startswith("structured_outputs")
        raise bad_request(str(error), field if is_answer else "tools") from None


def _nested(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a tool in chat's form, which nests under `function` what responses have flat."""
    if "function" in tool:
        return tool
    function = {name: value for name, value in tool.items() if name != "type"}
    return {"type": "function", "function": function}
