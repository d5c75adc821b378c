"""Rewrites JSON schemas in keywords that llguidance knows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any, Final

Schema = dict[str, Any]

_MOST_DIGITS: Final = 10_000  # largest `multipleOf` without its point: at least as many states
# Keywords whose values are objects of named schemas.
BY_NAME: Final = frozenset(("properties", "patternProperties", "$defs", "definitions"))
_SEVERAL: Final = frozenset(("anyOf", "oneOf", "allOf", "prefixItems"))
_ONE: Final = frozenset(("items", "additionalItems", "additionalProperties"))
_VALUES: Final = ("const", "enum", "default", "examples")
# Settings of `x-guidance` that are kept; others let llguidance ignore what it cannot do.
_SPACING: Final = ("item_separator", "key_separator", "whitespace_flexible", "whitespace_pattern")
# Keywords that combine an object from subschemas, which must allow each other's names.
_MERGING: Final = frozenset(
    (
        *("allOf", "not", "if", "then", "else", "dependencies", "dependentSchemas"),
        *("unevaluatedProperties", "$dynamicRef", "$recursiveRef"),
    )
)
_MAY_HAVE_MORE: Final = frozenset(("additionalProperties", "patternProperties"))
_CHOOSING: Final = frozenset(("$ref", "anyOf", "oneOf"))  # these only beside `properties`
# Formats that JSON Schema defines; by its rules, others are mere annotations.
_FORMATS: Final = frozenset(
    (
        *("date-time", "time", "date", "duration", "email", "idn-email", "hostname"),
        *("idn-hostname", "ipv4", "ipv6", "uri", "uri-reference", "iri", "iri-reference", "uuid"),
        *("uri-template", "json-pointer", "relative-json-pointer", "regex"),
    )
)


def closed(schema: Schema) -> Schema:
    """Return the schema with objects restricted to the names in `properties`.

    Models invent names, and programs do not expect them. An object that allows or requires others
    stays open, and a schema that combines subschemas stays as it is."""
    if any(_is_merged(part) for part in _parts(schema)):
        return schema

    def shut(part: Any) -> Any:
        if not isinstance(part, dict):
            return part
        found = mapped_parts(part, shut)
        told, needed = found.get("properties"), found.get("required")
        needs = set(map(str, needed)) if isinstance(needed, list) else set[str]()
        if isinstance(told, dict) and needs <= told.keys() and not _MAY_HAVE_MORE & found.keys():
            found["additionalProperties"] = False
        return found

    found: Schema = shut(schema)
    return found


def mapped_parts(schema: Schema, change: Callable[[Any], Any]) -> Schema:
    """Return the schema with `change` applied to the schemas directly within it."""
    found: Schema = {}
    for key, value in schema.items():
        if key in BY_NAME and isinstance(value, dict):
            found[key] = {name: change(each) for name, each in value.items()}
        elif key in _SEVERAL and isinstance(value, list):
            found[key] = [change(each) for each in value]
        else:
            found[key] = change(value) if key in _ONE else value
    return found


def reworded(schema: Schema) -> Schema:
    """Rewrite a schema in place; the same values fit. `ValueError` for numbers that take long."""
    spacing = schema.pop("x-guidance", {})
    for part in _parts(schema):
        _check_multiple(part.get("multipleOf"))
        if isinstance(kind := part.get("format"), str) and kind not in _FORMATS:
            del part["format"]
        _spell_names(part)
    if isinstance(spacing, dict):
        schema["x-guidance"] = {name: spacing[name] for name in _SPACING if name in spacing}
    return schema


def _parts(schema: Any) -> Iterator[Schema]:
    """Yield the schema and all within it; each may be changed before the next is asked for."""
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting += part
        if not isinstance(part, dict):
            continue
        yield part
        for key, item in part.items():
            if key in BY_NAME and isinstance(item, dict):
                waiting += item.values()
            elif key not in _VALUES:
                waiting.append(item)


def _is_merged(part: Schema) -> bool:
    return bool(_MERGING & set(part)) or ("properties" in part and bool(_CHOOSING & set(part)))


def _check_multiple(number: Any) -> None:
    if isinstance(number, int | float) and not isinstance(number, bool):
        digits = Decimal(str(number)).normalize().as_tuple().digits
        if int("".join(map(str, digits))) > _MOST_DIGITS:
            raise ValueError(
                f"multipleOf {number} is more than {_MOST_DIGITS} without its point and zeros "
                f"at its end"
            )


def _spell_names(part: Schema) -> None:
    """Replace `propertyNames` as typed programs write it for dictionaries: any string, an enum, or
    a pattern."""
    told = part.get("propertyNames")
    if not isinstance(told, dict) or told.get("type", "string") != "string":
        return
    said = told.keys() - {"type"}
    if not said:
        del part["propertyNames"]
    elif len(said) == 1 and not part.keys() & {"properties", "patternProperties"}:
        value, names = part.get("additionalProperties", True), told.get("enum")
        if isinstance(names, list) and all(isinstance(name, str) for name in names):
            spelled = {"properties": dict.fromkeys(names, value)}
        elif isinstance(told.get("pattern"), str):
            spelled = {"patternProperties": {told["pattern"]: value}}
        else:
            return
        del part["propertyNames"]
        part |= {**spelled, "additionalProperties": False}
