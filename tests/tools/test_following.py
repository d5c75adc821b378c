"""Schemas of which a part cannot be followed: the rest still is."""

from __future__ import annotations

from typing import Any

import pytest

from forerun.errors import GrammarTooMuch, InvalidGrammar
from forerun.grammars import Grammars
from forerun.grammars.schemas import closed
from forerun.tools.following import Following
from forerun.tools.tool import Tool
from forerun.types import StructuredOutputsParams
from tests.grammars.words import words

BAD = {"type": "string", "pattern": "("}
TEXT = {"type": "string"}


def of(*, strict: bool = False, **parameters: Any) -> Tool:
    function = {"name": "f", "parameters": {"type": "object", **parameters}, "strict": strict}
    return Tool.of({"type": "function", "function": function})


@pytest.fixture(scope="module")
def following() -> Following:
    return Following(Grammars(words()).check, lambda: 0.0)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"properties": {"a": TEXT}}, {"properties": {"a": TEXT}}),
        ({"properties": {"a": BAD, "b": TEXT}}, {"properties": {"a": TEXT, "b": TEXT}}),
        ({"properties": {"a": {"format": "regex"}}}, {"properties": {"a": {}}}),
        (
            {"properties": {"a": {**TEXT, "format": "regex", "maxLength": 3}}},
            {"properties": {"a": {**TEXT, "maxLength": 3}}},
        ),
        (
            {"properties": {"a": {"oneOf": [TEXT, {**TEXT, "maxLength": 3}]}}},
            {"properties": {"a": {"anyOf": [TEXT, {**TEXT, "maxLength": 3}]}}},
        ),
        (
            {"properties": {"a": {"type": "array", "items": BAD, "uniqueItems": True}}},
            {"properties": {"a": {"type": "array", "items": TEXT}}},
        ),
        ({"properties": {"a": {"$ref": "#/$defs/none"}}}, {"properties": {"a": {}}}),
        ({"$schema": "odd", "properties": {"a": TEXT}}, {"properties": {"a": TEXT}}),
        (
            {
                "properties": {"a": {"$ref": "#/$defs/n"}, "b": BAD},
                "$defs": {"n": {"type": "object", "properties": {"a": BAD, "n": TEXT}}},
            },
            {
                "properties": {"a": {"$ref": "#/$defs/n"}, "b": TEXT},
                "$defs": {"n": {"type": "object", "properties": {"a": TEXT, "n": TEXT}}},
            },
        ),
        (
            {
                "minProperties": 1,
                "properties": {"a": BAD, "b": {"type": "object", "maxProperties": 2}},
            },
            {
                "minProperties": 1,
                "properties": {"a": TEXT, "b": {"type": "object", "maxProperties": 2}},
            },
        ),
        (
            {"properties": {"a": BAD, "b": {**TEXT, "format": "date-time"}}},
            {"properties": {"a": TEXT, "b": {**TEXT, "format": "date-time"}}},
        ),
        (
            {
                "nullable": True,
                "$defs": {"n": TEXT},
                "properties": {"a": {"$ref": "#/$defs/n", "nullable": True}, "b": BAD},
            },
            {
                "$defs": {"n": TEXT},
                "properties": {
                    "a": {"anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}]},
                    "b": TEXT,
                },
            },
        ),
        (
            {"patternProperties": {"(": TEXT}, "additionalProperties": False},
            {},
        ),
        (
            {"properties": {"a": {"prefixItems": [TEXT], "items": False, "minItems": "odd"}}},
            {"properties": {"a": {}}},
        ),
        (
            {"properties": {"a": {"oneOf": [BAD], "anyOf": [TEXT, BAD]}}},
            {"properties": {"a": {"anyOf": [TEXT, TEXT]}}},
        ),
        (
            {"properties": {f"a{idx}": BAD for idx in range(100)}},
            {"properties": {f"a{idx}": TEXT for idx in range(100)}},
        ),
    ],
    ids=str,
)
def test_the_rest_is_followed(
    following: Following, given: dict[str, Any], found: dict[str, Any]
) -> None:
    assert following.nearest(of(**given)) == closed({"type": "object", **found})


def test_a_strict_tool_is_followed_as_it_is(following: Following) -> None:
    assert following.nearest(of(strict=True, properties={"a": TEXT}))["properties"] == {"a": TEXT}
    with pytest.raises(InvalidGrammar, match="the parameters of tool 'f'"):
        following.nearest(of(strict=True, properties={"a": BAD}))


def test_a_schema_that_is_too_long_to_look_at_every_part_is_any_object() -> None:
    num_checks = 0

    def check(_: StructuredOutputsParams) -> None:
        nonlocal num_checks
        num_checks += 1
        raise InvalidGrammar("no")

    following = Following(check, lambda: 0.0)
    tool = of(properties={f"a{idx}": BAD for idx in range(1000)})
    assert following.nearest(tool) == {"type": "object"}
    assert 100 < num_checks < 1000
    before = num_checks
    described = Tool(tool.name, "other words", tool.parameters)
    assert following.nearest(described) == {"type": "object"}
    assert num_checks == before, "what was found is kept, whatever is said of the tool"


def test_what_takes_long_is_refused() -> None:
    """Each check takes a second."""
    seconds = 0.0

    def check(_: StructuredOutputsParams) -> None:
        nonlocal seconds
        seconds += 1
        raise InvalidGrammar("no")

    following = Following(check, lambda: seconds)
    with pytest.raises(GrammarTooMuch, match="takes too long"):
        following.nearest(of(properties={f"a{idx}": BAD for idx in range(20)}))
    seconds = 0
    with pytest.raises(GrammarTooMuch, match="takes too long"):
        following.nearest_of([of(properties={f"b{idx}": TEXT}) for idx in range(20)])
