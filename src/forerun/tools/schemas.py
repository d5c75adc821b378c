"""Rewrites the schemas of arguments, dropping what does not matter or cannot be enforced."""

from __future__ import annotations

from typing import Any, Final

from forerun.grammars.schemas import BY_NAME, Schema

# Keywords that are dropped: all but `nullable`, which is rewritten, do not affect what fits.
_NOTES: Final = frozenset(
    ("$schema", "title", "description", "default", "examples", "$comment", "deprecated", "nullable")
)
_VALUES: Final = frozenset(("enum", "const", "required", "type"))
_BARE: Final = frozenset(
    ("type", "properties", "required", "items", "anyOf", "enum", "const", "additionalProperties")
)
_THE_REST_OF: Final = {"patternProperties": "additionalProperties", "prefixItems": "items"}
# Keywords that llguidance always enforces. `format` is not among them: it knows only some formats.
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
    """Return the schema without annotations, and with OpenAPI's `nullable` as a type null.

    `nullable` at the top is ignored: the arguments as a whole are never null."""
    found: Schema = _mapped({**schema, "nullable": False})
    return found


def followed(schema: Schema) -> Schema:
    """Drop keywords that llguidance may not enforce, so that more values fit; subschemas stay as
    they are."""
    return {key: value for key, value in schema.items() if key in _FOLLOWED}


def any_of(schema: Schema) -> Schema:
    """Turn `oneOf` into `anyOf`, or drop it if the schema has an `anyOf` already."""
    found = {key: value for key, value in schema.items() if key != "oneOf"}
    return {"anyOf": schema["oneOf"], **found} if "oneOf" in schema else found


def bare(schema: Schema) -> Schema:
    """Keep only the basic keywords. `additionalProperties` goes with `patternProperties`, and
    `items` with `prefixItems`: each describes what the other leaves over."""
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
