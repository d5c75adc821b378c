"""Schemas of arguments, as far as they can be followed."""

from __future__ import annotations

from typing import Any, Final

from forerun.grammars.schemas import BY_NAME, Schema

# Said to people, and without meaning for what fits.
_NOTES: Final = frozenset(
    ("$schema", "title", "description", "default", "examples", "$comment", "deprecated", "nullable")
)
_VALUES: Final = frozenset(("enum", "const", "required", "type"))
_BARE: Final = frozenset(
    ("type", "properties", "required", "items", "anyOf", "enum", "const", "additionalProperties")
)
_THE_REST_OF: Final = {"patternProperties": "additionalProperties", "prefixItems": "items"}
# What llguidance follows of all others; formats it knows some of.
_FOLLOWED: Final = frozenset(
    (
        *("type", "enum", "const", "$ref", "$id", "$anchor", "anyOf", "oneOf", "allOf"),
        *("properties", "patternProperties", "required", "additionalProperties"),
        *("items", "prefixItems", "additionalItems", "minItems", "maxItems"),
        *("minLength", "maxLength", "pattern", "minimum", "maximum", "multipleOf"),
        *("exclusiveMinimum", "exclusiveMaximum", "$defs", "definitions"),
    )
)
ANY_OBJECT: Final[Schema] = {"type": "object"}


def without_notes(schema: Schema) -> Schema:
    """As short as it can be said; OpenAPI's `nullable` in the words of JSON Schema, but that of all
    arguments together: these are never null."""
    found: Schema = _mapped({**schema, "nullable": False})
    return found


def followed(schema: Schema) -> Schema:
    """Without keywords that may not be followed: more may fit. Those of its parts stay."""
    return {key: value for key, value in schema.items() if key in _FOLLOWED}


def any_of(schema: Schema) -> Schema:
    """With `oneOf` as any of them; left out beside another choice."""
    found = {key: value for key, value in schema.items() if key != "oneOf"}
    return {"anyOf": schema["oneOf"], **found} if "oneOf" in schema else found


def bare(schema: Schema) -> Schema:
    """Its form alone, without what is said of the rest where parts of it are not told."""
    others = {_THE_REST_OF[key] for key in schema if key in _THE_REST_OF}
    return {key: value for key, value in schema.items() if key in _BARE - others}


def _mapped(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_mapped(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found: Schema = {}
    for key, value in schema.items():
        if key in _NOTES:
            continue
        if key in BY_NAME and isinstance(value, dict):
            found[key] = {name: _mapped(each) for name, each in value.items()}
        else:
            found[key] = value if key in _VALUES else _mapped(value)
    return _with_null(found) if schema.get("nullable") is True else found


def _with_null(schema: Schema) -> Schema:
    kind, values = schema.get("type"), schema.get("enum")
    if not isinstance(kind, str) and not isinstance(values, list):
        return {"anyOf": [schema, {"type": "null"}]} if schema else schema
    found = dict(schema)
    if isinstance(kind, str):
        found["type"] = [kind, "null"]
    if isinstance(values, list) and None not in values:
        found["enum"] = [*values, None]
    return found
