"""The shapes of fields for tools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from forerun.server.fields.kinds import (
    FLAG,
    TEXT,
    Anything,
    Either,
    Kind,
    ListOf,
    MapOf,
    OneOf,
    Shape,
    Tagged,
    Text,
)
from forerun.tools import MAX_TOOLS, MODES

_FUNCTION_TYPE: Final = OneOf(("function",))
NAME: Final = Text(1, 130)  # MCP servers' names are part of it
# Further keys of a function are not shown to the model.
_DEFINED: Final[dict[str, Kind]] = {
    "name": NAME,
    "description": TEXT,
    "parameters": MapOf("", Anything(), 4096),
    "strict": FLAG,
}
_NAMED: Final = Shape({"name": NAME}, ("name",))


def _tools(words: str, shapes: Mapping[str, Shape]) -> ListOf:
    return ListOf(Tagged(shapes, f"tools of type {words}; others are not supported"), 0, MAX_TOOLS)


def _choice(function: Shape, allowed: Shape) -> Either:
    return Either(
        (OneOf(MODES), Tagged({"function": function, "allowed_tools": allowed})),
        "auto, required, none, or a function",
    )


TOOLS: Final = _tools(
    '"function"',
    {
        "function": Shape(
            {"type": _FUNCTION_TYPE, "function": Shape(_DEFINED, ("name",), is_open=True)},
            ("type", "function"),
            is_open=True,
        )
    },
)
_CHOSEN: Final = Shape({"type": _FUNCTION_TYPE, "function": _NAMED}, ("type", "function"))
_SOME: Final = Shape(
    {"mode": OneOf(MODES[:2]), "tools": ListOf(_CHOSEN, 1, MAX_TOOLS)}, ("mode", "tools")
)
TOOL_CHOICE: Final = _choice(
    _CHOSEN,
    Shape({"type": OneOf(("allowed_tools",)), "allowed_tools": _SOME}, ("type", "allowed_tools")),
)
# Responses have the same keys flat, not nested under `function`. `defer_loading` is ignored: the
# prompt lists all tools from the start.
_FLAT: Final = Shape(
    {
        "type": _FUNCTION_TYPE,
        **_DEFINED,
        "async": OneOf((False,)),
    },
    ("type", "name"),
    is_open=True,
)
_NAMESPACE: Final = Shape(
    {
        "type": OneOf(("namespace",)),
        "name": NAME,
        "description": TEXT,
        "tools": _tools('"function" in a namespace', {"function": _FLAT}),
    },
    ("type", "name", "tools"),
)
# Tools that OpenAI's service runs itself; coding agents offer them to every model.
LEFT_OUT: Final = (
    *("web_search", "web_search_2025_08_26", "image_generation"),
    *("web_search_preview", "web_search_preview_2025_03_11"),
)
FLAT_TOOLS: Final = _tools(
    '"function" or "namespace"',
    {
        "function": _FLAT,
        "namespace": _NAMESPACE,
        **{kind: Shape({"type": OneOf((kind,))}, ("type",), is_open=True) for kind in LEFT_OUT},
    },
)
_FLAT_CHOSEN: Final = Shape({"type": _FUNCTION_TYPE, "name": NAME}, ("type", "name"))
FLAT_TOOL_CHOICE: Final = _choice(
    _FLAT_CHOSEN,
    Shape(
        {
            "type": OneOf(("allowed_tools",)),
            "mode": OneOf(MODES[:2]),
            "tools": ListOf(_FLAT_CHOSEN, 1, MAX_TOOLS),
        },
        ("type", "mode", "tools"),
    ),
)
CALLS: Final = ListOf(
    Tagged(
        {
            "function": Shape(
                {
                    "id": TEXT,
                    "type": _FUNCTION_TYPE,
                    # Any text: the model is shown even a name that it made up.
                    "function": Shape({"name": TEXT, "arguments": TEXT}, ("name",), is_open=True),
                },
                ("function",),
                is_open=True,
            )
        },
        'calls of type "function"; others are not supported',
        usual="function",
    ),
    0,
    MAX_TOOLS,
)
