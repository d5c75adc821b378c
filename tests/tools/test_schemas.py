"""Schemas of tools allow no properties but those that they name."""

from __future__ import annotations

from typing import Any

import pytest

from forerun.grammars import Grammars
from forerun.grammars.schemas import closed
from forerun.tools.tool import Tool
from forerun.types import StructuredOutputsParams
from tests.grammars.words import words

TEXT = {"type": "string"}
PART = {"properties": {"a": TEXT}}
SHUT = {**PART, "additionalProperties": False}


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (PART, SHUT),
        ({"properties": {"b": PART}}, {"properties": {"b": SHUT}, "additionalProperties": False}),
        ({"items": PART}, {"items": SHUT}),
        ({"oneOf": [PART, TEXT]}, {"oneOf": [SHUT, TEXT]}),
        ({"anyOf": [PART], "oneOf": [PART]}, {"anyOf": [SHUT], "oneOf": [SHUT]}),
        ({"$ref": "#/$defs/n", "$defs": {"n": PART}}, {"$ref": "#/$defs/n", "$defs": {"n": SHUT}}),
        ({"additionalProperties": PART}, {"additionalProperties": SHUT}),
        ({"properties": {}}, {"properties": {}, "additionalProperties": False}),
        ({"properties": {"allOf": TEXT, "$ref": TEXT}, "additionalProperties": True}, None),
        ({**PART, "additionalProperties": TEXT}, None),
        ({**PART, "patternProperties": {"x": TEXT}}, None),
        ({**PART, "required": ["a", "b"]}, None),
        ({"type": "object"}, None),
        ({**PART, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, None),
        ({"allOf": [PART, {"properties": {"b": TEXT}}]}, None),
        ({"$defs": {"n": PART, "m": {**PART, "$ref": "#/$defs/n"}}, **PART}, None),
        ({**PART, "if": PART, "then": {"properties": {"b": TEXT}}}, None),
        (True, None),
    ],
    ids=str,
)
def test_objects_have_the_names_that_they_tell_of(given: Any, found: Any) -> None:
    assert closed(given) == (given if found is None else found)


def test_no_argument_is_made_up() -> None:
    tool = Tool.of({"type": "function", "function": {"name": "f", "parameters": PART}})
    grammar = Grammars(words()).of(StructuredOutputsParams(json=tool.schema))
    assert grammar is not None
    for text, is_told in (('{"a": "a"}', True), ('{"b": "a"}', False)):
        tokens = words().encode(text, add_special=False)
        assert (grammar.num_fitting((), tokens) == len(tokens)) == is_told
