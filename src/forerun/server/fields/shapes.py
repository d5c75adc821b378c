"""The shapes of larger fields: prompts, messages, content parts, predictions, formats, items."""

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
    Real,
    Shape,
    Tagged,
    Text,
    Whole,
)
from forerun.server.fields.tool_shapes import CALLS

NOTHING: Final = OneOf((None,))
MAX_MESSAGES: Final = 4096
MAX_PROMPTS: Final = 1024
TOKEN: Final = Whole(0, 2**31 - 1)
TOKENS: Final = ListOf(TOKEN)
SOME_TOKENS: Final = ListOf(TOKEN, 1)

PROMPT: Final = Either(
    (Text(1), SOME_TOKENS, ListOf(Text(1), 1, MAX_PROMPTS), ListOf(SOME_TOKENS, 1, MAX_PROMPTS)),
    "a text, a list of token ids, or a list of either, none of them empty",
)

# Messages, items and parts are open: clients send back keys that other servers gave them.
_TEXT_PART: Final = Shape({"type": OneOf(("text",)), "text": TEXT}, ("type", "text"), is_open=True)
PARTS: Final = ListOf(
    Tagged({"text": _TEXT_PART}, 'parts of type "text"; others are not supported'), 0, MAX_MESSAGES
)
CONTENT: Final = Either((TEXT, PARTS), 'a text, or a list of {"type": "text", "text": …}')


def _said_by(role: str, *needed: str, **more: Kind) -> Shape:
    """Return the shape of a message. Keys that would have to be shown to the model, but cannot be,
    must be null."""
    known: dict[str, Kind] = {
        "role": OneOf((role,)),
        "content": CONTENT,
        "name": TEXT,
        "refusal": NOTHING,
        "tool_calls": Either((NOTHING, ListOf(NOTHING, 0, 0)), "null: this role calls no tools"),
        "function_call": NOTHING,
        "audio": NOTHING,
        "reasoning": NOTHING,
        "reasoning_content": NOTHING,
    }
    return Shape({**known, **more}, ("role", *needed), is_open=True)


_MESSAGE: Final = Tagged(
    {
        **{role: _said_by(role, "content") for role in ("system", "developer", "user")},
        "assistant": _said_by(
            "assistant", tool_calls=CALLS, reasoning=TEXT, reasoning_content=TEXT
        ),
        "tool": _said_by("tool", tool_call_id=TEXT),  # no `content`: some tools return nothing
    },
    'an object whose "role" is system, developer, user, assistant or tool',
    key="role",
)
MESSAGES: Final = ListOf(_MESSAGE, 1, MAX_MESSAGES)

PREDICTION: Final = Shape({"type": OneOf(("content",)), "content": CONTENT}, ("type", "content"))
STOP_SEQUENCES: Final = ListOf(Text(1, 1000), 0, 64)
STOP: Final = Either((Text(1, 1000), STOP_SEQUENCES), "a text, or a list of at most 64 texts")
LOGIT_BIAS: Final = MapOf(r"^[0-9]{1,9}$", Real(-100, 100), 4096)
STREAM_OPTIONS: Final = Shape(
    {"include_usage": FLAG, "continuous_usage_stats": FLAG, "include_obfuscation": FLAG}
)
SPECULATIVE: Final = Either(
    (
        FLAG,
        Shape(
            {
                "method": Text(1, 64),
                "num_speculative_tokens": Whole(0, 512),
                "num_branches": Whole(1, 512),
                "acceptance": OneOf(("coupled", "rejection")),
            }
        ),
    ),
    "false, or an object with method, num_speculative_tokens, num_branches, acceptance",
)
_SCHEMA: Final = MapOf("", Anything(), 4096)
_NAMED_SCHEMA: Final[dict[str, Kind]] = {
    "name": Text(1, 256),
    "description": TEXT,
    "schema": _SCHEMA,
    "strict": FLAG,
}


def _formats(schema: Shape) -> Tagged:
    """Return the kind of a format; `schema` beside `json_object` is llama.cpp's way to give one."""
    text = Shape({"type": OneOf(("text",))}, ("type",))
    some = Shape({"type": OneOf(("json_object",)), "schema": _SCHEMA}, ("type",))
    return Tagged({"text": text, "json_object": some, "json_schema": schema})


RESPONSE_FORMAT: Final = _formats(
    Shape(
        {"type": OneOf(("json_schema",)), "json_schema": Shape(_NAMED_SCHEMA)},
        ("type", "json_schema"),
    )
)
TEXT_FORMAT: Final = Shape(
    {
        "format": _formats(
            Shape({"type": OneOf(("json_schema",)), **_NAMED_SCHEMA}, ("type", "name", "schema"))
        ),
        "verbosity": OneOf(("low", "medium", "high")),
    }
)
STRUCTURED_OUTPUTS: Final = Shape(
    {
        "json": Either((TEXT, _SCHEMA), "a JSON schema, or its text"),
        "json_object": FLAG,
        "regex": Text(1),
        "choice": ListOf(Text(1), 1, 4096),
        "grammar": Text(1),
        "disable_any_whitespace": FLAG,
        "whitespace_pattern": Text(1),
        "triggers": ListOf(Text(1, 128), 1, 64),
    }
)
REASONING: Final = Shape(
    {
        "effort": TEXT,
        **{name: Anything() for name in ("summary", "generate_summary", "context", "mode")},
    }
)
FORERUN: Final = Shape({"trace": FLAG})
METADATA: Final = MapOf("^[\\s\\S]{0,64}$", Text(0, 512), 16)

_INPUT_PART: Final = Tagged(
    {
        kind: Shape({"type": OneOf((kind,)), "text": TEXT}, ("type", "text"), is_open=True)
        for kind in ("input_text", "output_text")
    },
    'parts of type "input_text" or "output_text"; others are not supported',
)
_TEXT_OR_PARTS: Final = Either((TEXT, ListOf(_INPUT_PART, 0, MAX_MESSAGES)))


_REASONED: Final = ListOf(
    Tagged(
        {
            "reasoning_text": Shape(
                {"type": OneOf(("reasoning_text",)), "text": TEXT}, ("type", "text"), is_open=True
            )
        },
        'parts of type "reasoning_text"',
    ),
    0,
    MAX_MESSAGES,
)


def _item(kind: str, *needed: str, **more: Kind) -> Shape:
    return Shape({"type": OneOf((kind,)), **more}, needed, is_open=True)


_ITEM: Final = Tagged(
    {
        "message": _item(
            "message",
            *("role", "content"),
            role=OneOf(("system", "developer", "user", "assistant")),
            content=_TEXT_OR_PARTS,
        ),
        "function_call": _item(
            "function_call",
            *("call_id", "name", "arguments"),
            call_id=TEXT,
            name=TEXT,
            arguments=TEXT,
            namespace=TEXT,
        ),
        "function_call_output": _item(
            "function_call_output", "call_id", "output", call_id=TEXT, output=_TEXT_OR_PARTS
        ),
        # Other servers' items have summaries and encrypted content, which are ignored.
        "reasoning": _item("reasoning", content=_REASONED),
    },
    usual="message",
    instead={
        "item_reference": "nothing is stored here: send whole items "
        "(in the AI SDK: providerOptions: {openai: {store: false}})"
    },
)
INPUT: Final = Either((Text(1), ListOf(_ITEM, 1, MAX_MESSAGES)), "a text, or a list of items")
