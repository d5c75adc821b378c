"""What a caller asks for, in the words of llguidance."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from llguidance import LLMatcher, grammar_from

from forerun.errors import InvalidGrammar
from forerun.types import StructuredOutputsParams

if TYPE_CHECKING:
    from llguidance._lib import JsonCompileOptions

# A line's end and an indentation, or a space. JSON would allow any number of both, and a small
# model that has begun to indent may never stop.
_WHITESPACE: Final = r"(\r?\n[ \t]{0,128}|[ ])"


def kind_of(wanted: StructuredOutputsParams) -> str:
    """What a caller would call it."""
    if wanted.regex is not None:
        return "the regular expression"
    if wanted.choice is not None:
        return "the choice"
    return "the grammar" if wanted.grammar is not None else "the JSON schema"


def described(wanted: StructuredOutputsParams) -> str:
    """The grammar's text; whether it makes sense is found out when it is compiled."""
    try:
        if wanted.regex is not None:
            return LLMatcher.grammar_from_regex(wanted.regex)
        if wanted.choice is not None:
            return grammar_from("choice", json.dumps(wanted.choice))
        if wanted.grammar is not None:
            return grammar_from("grammar", wanted.grammar)
        return LLMatcher.grammar_from_json_schema(_schema(wanted), overrides=_whitespace(wanted))
    except ValueError as error:  # what is no GBNF, or has numbers beyond all bounds
        raise InvalidGrammar.because(kind_of(wanted), str(error)) from None


def _schema(wanted: StructuredOutputsParams) -> str:
    if wanted.json is None:
        return '{"type": "object"}'
    return wanted.json if isinstance(wanted.json, str) else json.dumps(_plain(wanted.json))


def _plain(value: Any) -> Any:
    """Mappings of any kind as dicts, which is all that json writes."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _whitespace(wanted: StructuredOutputsParams) -> JsonCompileOptions:
    if wanted.disable_any_whitespace:
        return {"whitespace_flexible": False}
    return {"whitespace_pattern": wanted.whitespace_pattern or _WHITESPACE}
