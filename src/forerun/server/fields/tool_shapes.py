"""What stands inside the fields that have to do with tools."""

from __future__ import annotations

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
_NAME: Final = Text(1, 64)
_ONLY: Final = 'tools of type "function"; others are not supported'
_DEFINED: Final[dict[str, Kind]] = {
    "name": _NAME,
    "description": TEXT,
    "parameters": MapOf("", Anything(), 4096),
    "strict": FLAG,
}
_NAMED: Final = Shape({"name": _NAME}, ("name",))


def _tools(shape: Shape) -> ListOf:
    return ListOf(Tagged({"function": shape}, _ONLY), 0, MAX_TOOLS)


def _choice(function: Shape, allowed: Shape) -> Either:
    return Either(
        (OneOf(MODES), Tagged({"function": function, "allowed_tools": allowed})),
        "auto, required, none, or a function",
    )


TOOLS: Final = _tools(
    Shape({"type": _FUNCTION_TYPE, "function": Shape(_DEFINED, ("name",))}, ("type", "function"))
)
_CHOSEN: Final = Shape({"type": _FUNCTION_TYPE, "function": _NAMED}, ("type", "function"))
_SOME: Final = Shape(
    {"mode": OneOf(MODES[:2]), "tools": ListOf(_CHOSEN, 1, MAX_TOOLS)}, ("mode", "tools")
)
TOOL_CHOICE: Final = _choice(
    _CHOSEN,
    Shape({"type": OneOf(("allowed_tools",)), "allowed_tools": _SOME}, ("type", "allowed_tools")),
)
# Responses have the same without an object of its own for what is said of the function.
FLAT_TOOLS: Final = _tools(Shape({"type": _FUNCTION_TYPE, **_DEFINED}, ("type", "name")))
_FLAT_CHOSEN: Final = Shape({"type": _FUNCTION_TYPE, "name": _NAME}, ("type", "name"))
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
                    "index": Anything(),  # of a chunk that is sent back
                    "function": Shape(
                        {"name": _NAME, "arguments": TEXT, "parsed_arguments": Anything()},
                        ("name",),
                    ),
                },
                ("function",),
            )
        },
        'calls of type "function"; others are not supported',
        usual="function",
    ),
    0,
    MAX_TOOLS,
)
