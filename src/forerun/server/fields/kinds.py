"""Kinds of JSON values: each reads one and describes itself as a JSON schema.

Both come from one object, so that what is documented is what is accepted.
"""

from __future__ import annotations

import math
import re
import reprlib
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from forerun.errors import unknown_name
from forerun.server.errors import ApiError, bad_request

Schema = dict[str, Any]
LENIENT: Final = ContextVar("keys that nobody knows are ignored", default=False)


class Kind(Protocol):
    @property
    def words(self) -> str:
        """What to give, as part of an error's sentence."""
        ...

    @property
    def schema(self) -> Schema: ...

    def read(self, value: Any, at: str) -> Any:
        """Return the value as the server uses it, or raise `ApiError`; `at` is its place."""
        ...


def wrong(kind: Kind, value: Any, at: str) -> ApiError:
    return bad_request(f"{at}={reprlib.repr(value)} is not allowed; give {kind.words}.", at)


@dataclass(frozen=True)
class Text:
    min_len: int = 0
    max_len: int | None = None

    @property
    def words(self) -> str:
        if self.max_len is not None:
            return f"a text of {self.min_len} to {self.max_len} characters"
        return "a text that is not empty" if self.min_len else "a text"

    @property
    def schema(self) -> Schema:
        bounds = {"minLength": self.min_len, "maxLength": self.max_len}
        return {"type": "string", **{k: v for k, v in bounds.items() if v}}

    def read(self, value: Any, at: str) -> str:
        if not isinstance(value, str) or len(value) < self.min_len:
            raise wrong(self, value, at)
        if self.max_len is not None and len(value) > self.max_len:
            raise wrong(self, value, at)
        if not _is_unicode(value):
            raise bad_request(f"{at} holds half a surrogate pair; give valid Unicode.", at)
        return value


@dataclass(frozen=True)
class Whole:
    low: int
    high: int

    @property
    def words(self) -> str:
        return f"a whole number from {self.low} to {self.high}"

    @property
    def schema(self) -> Schema:
        return {"type": "integer", "minimum": self.low, "maximum": self.high}

    def read(self, value: Any, at: str) -> int:
        """Accept 1.0 as well, since JSON has only one kind of number."""
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        if not is_whole or not self.low <= value <= self.high:
            raise wrong(self, value, at)
        return int(value)

    def holds(self, values: list[Any]) -> bool:
        """Whether all values are integers in range. This takes a hundredth of the time of reading
        each: prompts may have a million ids."""
        if set(map(type, values)) != {int}:
            return False
        return bool(self.low <= min(values) and max(values) <= self.high)


@dataclass(frozen=True)
class Real:
    low: float
    high: float
    above_low: bool = False  # `low` itself is not allowed

    @property
    def words(self) -> str:
        return f"a number {'above' if self.above_low else 'from'} {self.low:g} to {self.high:g}"

    @property
    def schema(self) -> Schema:
        low = "exclusiveMinimum" if self.above_low else "minimum"
        return {"type": "number", low: self.low, "maximum": self.high}

    def read(self, value: Any, at: str) -> float:
        is_real = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_real or not self.low <= value <= self.high:
            raise wrong(self, value, at)
        if self.above_low and value <= self.low:
            raise wrong(self, value, at)
        assert math.isfinite(value), "within finite bounds"
        return float(value)


@dataclass(frozen=True)
class Flag:
    words: str = "true or false"

    @property
    def schema(self) -> Schema:
        return {"type": "boolean"}

    def read(self, value: Any, at: str) -> bool:
        if not isinstance(value, bool):
            raise wrong(self, value, at)
        return value


@dataclass(frozen=True)
class OneOf:
    """One of a few values."""

    values: tuple[Any, ...]

    @property
    def words(self) -> str:
        return " or ".join(_json_word(value) for value in self.values)

    @property
    def schema(self) -> Schema:
        return {"enum": list(self.values)}

    def read(self, value: Any, at: str) -> Any:
        for known in self.values:
            if type(known) is type(value) and known == value:
                return known
        raise wrong(self, value, at)


@dataclass(frozen=True)
class ListOf:
    kind: Kind
    min_len: int = 0
    max_len: int = 1 << 20

    @property
    def words(self) -> str:
        return f"a list of {self.min_len} to {self.max_len} items, each {self.kind.words}"

    @property
    def schema(self) -> Schema:
        bounds = {"minItems": self.min_len, "maxItems": self.max_len}
        return {"type": "array", "items": self.kind.schema, **bounds}

    def read(self, value: Any, at: str) -> list[Any]:
        if not isinstance(value, list) or not self.min_len <= len(value) <= self.max_len:
            raise wrong(self, value, at)
        if isinstance(self.kind, Whole) and self.kind.holds(value):
            return value
        return [self.kind.read(item, f"{at}[{idx}]") for idx, item in enumerate(value)]


@dataclass(frozen=True)
class Shape:
    """An object with these keys. Null counts as not given. If the shape `is_open`, other keys are
    ignored."""

    keys: Mapping[str, Kind]
    required: tuple[str, ...] = ()
    is_open: bool = False

    @property
    def words(self) -> str:
        return f"an object with {', '.join(self.required or self.keys)}"

    @property
    def schema(self) -> Schema:
        properties = {
            name: kind.schema if name in self.required else or_null(kind.schema)
            for name, kind in self.keys.items()
        }
        needed = {"required": list(self.required)} if self.required else {}
        return {
            "type": "object",
            "properties": properties,
            "additionalProperties": self.is_open,
            **needed,
        }

    def read(self, value: Any, at: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise wrong(self, value, at)
        if not (self.is_open or LENIENT.get()):
            for name in value:
                if name not in self.keys:
                    self._check_names(value, at)
                    raise unknown_key(name, at, self.keys)
        for name in self.required:
            if value.get(name) is None:
                raise bad_request(f"{at}.{name} is missing; give {self.keys[name].words}.", at)
        return {
            name: self.keys[name].read(item, f"{at}.{name}")
            for name, item in value.items()
            if item is not None and name in self.keys
        }

    def _check_names(self, value: Mapping[str, Any], at: str) -> None:
        """Raise for an unknown role or type, on which the other keys depend: it says more than the
        unknown key."""
        for name, kind in self.keys.items():
            if isinstance(kind, OneOf) and value.get(name) is not None:
                kind.read(value[name], f"{at}.{name}")


@dataclass(frozen=True)
class MapOf:
    """An object with any keys that match `pattern`."""

    pattern: str
    kind: Kind
    max_len: int

    @property
    def words(self) -> str:
        return f"an object of at most {self.max_len} keys, each {self.kind.words}"

    @property
    def schema(self) -> Schema:
        return {
            "type": "object",
            "patternProperties": {self.pattern: self.kind.schema},
            "additionalProperties": False,
            "maxProperties": self.max_len,
        }

    def read(self, value: Any, at: str) -> dict[str, Any]:
        if not isinstance(value, dict) or len(value) > self.max_len:
            raise wrong(self, value, at)
        for key in value:
            if not re.search(self.pattern, key) or not _is_unicode(key):
                raise bad_request(f"{at} has the key {reprlib.repr(key)}; see the docs.", at)
        return {key: self.kind.read(item, f"{at}.{key[:64]}") for key, item in value.items()}


@dataclass(frozen=True)
class Anything:
    """Any JSON value with valid Unicode in it."""

    words: str = "any JSON value"

    @property
    def schema(self) -> Schema:
        return {}

    def read(self, value: Any, at: str) -> Any:
        waiting = [value]
        while waiting:
            one = waiting.pop()
            if isinstance(one, str) and not _is_unicode(one):
                raise bad_request(f"{at} holds half a surrogate pair; give valid Unicode.", at)
            if isinstance(one, dict):
                waiting += [*one.keys(), *one.values()]
            if isinstance(one, list):
                waiting += one
        return value


@dataclass(frozen=True)
class Either:
    """A value of any of these kinds; errors show `hint`, if given, in place of all their words."""

    kinds: Sequence[Kind]
    hint: str = ""

    @property
    def words(self) -> str:
        return self.hint or ", or ".join(kind.words for kind in self.kinds)

    @property
    def schema(self) -> Schema:
        return {"anyOf": [kind.schema for kind in self.kinds]}

    def read(self, value: Any, at: str) -> Any:
        likely = [kind for kind in self.kinds if _looks_like(kind, value)]
        if len(likely) == 1:  # its own error says more
            return likely[0].read(value, at)
        for kind in likely:
            try:
                return kind.read(value, at)
            except ApiError:
                continue
        raise wrong(self, value, at)


@dataclass(frozen=True)
class Tagged:
    """An object that says in `key` which of `shapes` it has, `usual` if it does not. For other
    values of `key`, `instead` may say what to do; else errors list the allowed ones."""

    shapes: Mapping[str, Shape]
    hint: str = ""
    key: str = "type"
    usual: str | None = None
    instead: Mapping[str, str] = field(default_factory=dict)

    @property
    def words(self) -> str:
        return self.hint or f'an object whose "{self.key}" is {" or ".join(self.shapes)}'

    @property
    def schema(self) -> Schema:
        return {"anyOf": [shape.schema for shape in self.shapes.values()]}

    def read(self, value: Any, at: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise wrong(self, value, at)
        kind = value.get(self.key) or self.usual
        if kind is None:
            raise bad_request(f"{at}.{self.key} is missing; give {self.words}.", at)
        if not isinstance(kind, str) or kind not in self.shapes:
            shown = f"{at}.{self.key}={reprlib.repr(kind)} is not allowed"
            what = self.instead.get(kind) if isinstance(kind, str) else None
            raise bad_request(f"{shown}; {what or f'give {self.words}'}.", at)
        return self.shapes[kind].read(value, at)


def unknown_key(name: str, at: str, valid: Mapping[str, Any]) -> ApiError:
    shown = reprlib.repr(name) if len(name) > 64 else name
    where = f"{at}.{shown}" if at else shown
    told = unknown_name("field", where, _placed(at, valid))
    more = "A server with --lenient-fields passes over such."
    return bad_request(f"{told} {more}", where, "unknown_field")


def or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]} if schema else {}


def _placed(at: str, valid: Mapping[str, Any]) -> list[str]:
    return [f"{at}.{name}" if at else name for name in valid]


def _looks_like(kind: Kind, value: Any) -> bool:
    if isinstance(kind, Text):
        return isinstance(value, str)
    if isinstance(kind, Flag):
        return isinstance(value, bool)
    if isinstance(kind, ListOf):
        return isinstance(value, list)
    if isinstance(kind, Shape | MapOf | Tagged):
        return isinstance(value, dict)
    return True


def _json_word(value: Any) -> str:
    return {None: "null", True: "true", False: "false"}.get(value, repr(value))


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


TEXT: Final = Text()
FLAG: Final = Flag()
