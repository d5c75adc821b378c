"""What an answer may call, in the words of each API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forerun.engine.api.async_engine import AsyncEngine
from forerun.errors import InvalidGrammar, InvalidOption, InvalidTemplate
from forerun.server.errors import bad_request
from forerun.server.structured import structure_of
from forerun.tools import Calling


def calling_of(given: Mapping[str, Any], engine: AsyncEngine) -> Calling | None:
    """From `tools` and `tool_choice`."""
    tools = [_nested(tool) for tool in given.get("tools", ())]
    try:
        return engine.toolbox.calling(
            tools,
            given.get("tool_choice"),
            given.get("parallel_tool_calls", True),
            structure_of(given).wanted,
        )
    except (InvalidOption, InvalidGrammar, InvalidTemplate) as error:
        named = (name for name in ("tool_choice", "structured_outputs") if name in str(error))
        raise bad_request(str(error), next(named, "tools")) from None


def _nested(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    """Responses say flatly what chat says in an object of its own."""
    if "function" in tool:
        return tool
    function = {name: value for name, value in tool.items() if name != "type"}
    return {"type": "function", "function": function}
