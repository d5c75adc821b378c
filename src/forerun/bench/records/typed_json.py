"""Parsed JSON, converted back to the types that it was written from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints, is_typeddict

_hints = cache(get_type_hints)  # cached, as there are many cells and runs


class Misfit(ValueError):
    """A value is missing or wrong; the message is its place, like `runs.0.digest`."""


def as_type(kind: Any, value: Any, place: str = "") -> Any:
    """Convert `value` to a dataclass, TypedDict, list, mapping, plain type, or optional of these.

    Whole numbers pass as floats. Of a TypedDict only the required keys are checked; keys that a
    dataclass does not know are dropped.
    """
    origin, inner = get_origin(kind) or kind, get_args(kind)
    if kind is Any or (value is None and type(None) in inner):
        return value
    if type(None) in inner:
        return as_type(inner[0], value, place)
    if is_dataclass(kind) or is_typeddict(kind):
        given = _of_type(dict, value, place)
        hints = _hints(kind)
        wanted = kind.__required_keys__ if is_typeddict(kind) else hints
        named = {
            name: as_type(hints[name], given.get(name), _below(place, name)) for name in wanted
        }
        return given if is_typeddict(kind) else kind(**named)
    if origin in (dict, Mapping) and inner:
        return {
            _key(inner[0], name, place): as_type(inner[1], item, _below(place, name))
            for name, item in _of_type(dict, value, place).items()
        }
    if origin in (list, Sequence):
        items = enumerate(_of_type(list, value, place))
        return [as_type(inner[0], item, _below(place, idx)) for idx, item in items]
    return _of_type((int, float) if kind is float else origin, value, place)


def _of_type(kind: Any, value: Any, place: str) -> Any:
    if not isinstance(value, kind):
        raise Misfit(place)
    return value


def _key(kind: Any, name: str, place: str) -> Any:
    """Convert a key, which JSON has as a string."""
    try:
        return kind(name)
    except ValueError:
        raise Misfit(_below(place, name)) from None


def _below(place: str, name: str | int) -> str:
    return f"{place}.{name}" if place else str(name)
