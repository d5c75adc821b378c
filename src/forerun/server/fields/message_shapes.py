"""The shapes of fields of Anthropic's messages."""

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
    Whole,
)
from forerun.server.fields.shapes import MAX_MESSAGES
from forerun.server.fields.tool_shapes import NAME
from forerun.tools import MAX_TOOLS

_OBJECT: Final = MapOf("", Anything(), 4096)


def _open(kind: str, *needed: str, **known: Kind) -> Shape:
    """Return the shape of a block; further keys are ignored: cache marks, citations, signatures."""
    return Shape({"type": OneOf((kind,)), **known}, ("type", *needed), is_open=True)


_TEXT: Final = {"text": _open("text", "text", text=TEXT)}
_TEXTS: Final = ListOf(
    Tagged(_TEXT, 'blocks of type "text"; others are not supported'), 0, MAX_MESSAGES
)
_TEXT_OR_BLOCKS: Final = Either((TEXT, _TEXTS))
SYSTEM: Final = _TEXT_OR_BLOCKS


def _said_by(role: str, words: str, least: int, **blocks: Shape) -> Shape:
    listed = ListOf(
        Tagged({**_TEXT, **blocks}, f"blocks of type {words}; others are not supported"),
        least,
        MAX_MESSAGES,
    )
    content = Either((TEXT, listed))
    return Shape({"role": OneOf((role,)), "content": content}, ("role", "content"), is_open=True)


TURNS: Final = ListOf(
    Tagged(
        {
            "user": _said_by(
                "user",
                '"text" or "tool_result"',
                1,
                tool_result=_open(
                    "tool_result", "tool_use_id", tool_use_id=TEXT, content=_TEXT_OR_BLOCKS
                ),
            ),
            # Thinking of other servers' models may be encrypted, which is ignored.
            "assistant": _said_by(
                "assistant",
                '"text", "thinking" or "tool_use"',
                0,
                thinking=_open("thinking", "thinking", thinking=TEXT),
                redacted_thinking=_open("redacted_thinking"),
                tool_use=_open(
                    "tool_use", "id", "name", "input", id=TEXT, name=TEXT, input=_OBJECT
                ),
            ),
            "system": _said_by("system", '"text"', 1),
        },
        'an object whose "role" is user, assistant or system',
        key="role",
    ),
    1,
    MAX_MESSAGES,
)

# Tools that Anthropic's service runs itself; coding agents offer them to every model.
LEFT_OUT: Final = (
    *("web_search_20250305", "web_search_20260209", "web_search_20260318"),
    *("web_fetch_20250910", "web_fetch_20260209", "web_fetch_20260309", "web_fetch_20260318"),
    *("code_execution_20250522", "code_execution_20250825"),
    *("code_execution_20260120", "code_execution_20260521"),
    *("tool_search_tool_bm25", "tool_search_tool_bm25_20251119"),
    *("tool_search_tool_regex", "tool_search_tool_regex_20251119"),
    "advisor_20260301",
)
CUSTOM_TOOLS: Final = ListOf(
    Tagged(
        {
            "custom": Shape(
                {
                    "type": OneOf(("custom",)),
                    "name": NAME,
                    "description": TEXT,
                    "input_schema": _OBJECT,
                    "strict": FLAG,
                },
                ("name", "input_schema"),
                is_open=True,
            ),
            **{kind: _open(kind) for kind in LEFT_OUT},
        },
        "a tool with a name and an input_schema; others are not supported",
        usual="custom",
    ),
    0,
    MAX_TOOLS,
)


def _choice(kind: str, *needed: str, **known: Kind) -> Shape:
    own = {"type": OneOf((kind,)), **known}
    return Shape({**own, "disable_parallel_tool_use": FLAG}, ("type", *needed))


CUSTOM_TOOL_CHOICE: Final = Tagged(
    {
        **{kind: _choice(kind) for kind in ("auto", "any", "none")},
        "tool": _choice("tool", "name", name=NAME),
    }
)
THINKING: Final = Tagged(
    {
        "disabled": Shape({"type": OneOf(("disabled",))}, ("type",)),
        **{
            kind: Shape(
                {
                    "type": OneOf((kind,)),
                    "budget_tokens": Whole(1, 2**31 - 1),
                    "display": OneOf(("summarized", "omitted")),
                },
                ("type",),
            )
            for kind in ("enabled", "adaptive", "between_tools")
        },
    }
)
OUTPUT_CONFIG: Final = Shape(
    {
        "effort": TEXT,
        "format": Shape(
            {"type": OneOf(("json_schema",)), "schema": _OBJECT}, ("type", "schema"), is_open=True
        ),
        "task_budget": Anything(),
    }
)
