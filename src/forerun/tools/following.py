"""Reduces the schemas of arguments to what a grammar can enforce."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

from forerun.errors import GrammarTooMuch, InvalidGrammar
from forerun.grammars.schemas import Schema, mapped_parts
from forerun.tools.schemas import ANY_OBJECT, any_of, bare, followed
from forerun.tools.tool import Tool
from forerun.types import StructuredOutputsParams

Check = Callable[[StructuredOutputsParams], None]  # raises `InvalidGrammar`
Clock = Callable[[], float]  # CPU seconds
_MAX_KEPT: Final = 512  # schemas; clients send the same tools with every request
_MOST_CHECKS, _MOST_SECONDS = 512, 5.0


class Following:
    """Drops from schemas, part by part, what `check` rejects, so that more values fit; in a strict
    tool it is an error.

    Tools whose checks take too long by `clock` are refused, be it one schema or all together:
    dropping what is left unchecked would make answers depend on the machine."""

    def __init__(self, check: Check, clock: Clock) -> None:
        self._check = check
        self._clock = clock
        self._nearest = lru_cache(_MAX_KEPT)(self._found)

    def nearest_of(self, tools: Iterable[Tool]) -> dict[str, Schema]:
        """Return what can be enforced of each tool's schema, by tool name."""
        end, found = self._clock() + _MOST_SECONDS, dict[str, Schema]()
        for tool in tools:
            _check_time(self._clock, end)
            found[tool.name] = self.nearest(tool)
        return found

    def nearest(self, tool: Tool) -> Schema:
        """Return the nearest schema to the tool's that can be enforced."""
        text = json.dumps(tool.schema)
        if not tool.is_strict:
            return self._nearest(text)
        try:
            self._check(StructuredOutputsParams(json=text))
        except InvalidGrammar as error:
            raise InvalidGrammar(f"the parameters of tool {tool.name!r}: {error}") from None
        return tool.schema

    def _found(self, text: str) -> Schema:
        schema = json.loads(text)
        found = _Mending(self._check, self._clock).mended(schema)
        return found if isinstance(found, dict) and found.get("type") else ANY_OBJECT


class _Mending:
    """Reduces one schema, with a limited number of checks."""

    def __init__(self, check: Check, clock: Clock) -> None:
        self._check = check
        self._clock = clock
        self._num_left = _MOST_CHECKS
        self._end = clock() + _MOST_SECONDS

    def mended(self, schema: Schema) -> Any:
        if self._fits(schema):
            return schema
        # While a definition is checked, all references in it allow any value.
        kinds = [kind for kind in ("$defs", "definitions") if isinstance(schema.get(kind), dict)]
        unknown = {kind: dict.fromkeys(schema[kind], True) for kind in kinds}
        known = {
            kind: {name: self._nearest(part, unknown) for name, part in schema[kind].items()}
            for kind in kinds
        }
        found = self._nearest({k: v for k, v in schema.items() if k not in known}, known)
        return {**found, **known} if isinstance(found, dict) else found

    def _nearest(self, part: Any, known: Mapping[str, Any]) -> Any:
        """Return the first of these that fits: the part itself, the part with its subschemas
        reduced, that without doubtful keywords, its basic form, or {}."""
        if not isinstance(part, dict) or self._fits({**part, **known}):
            return part
        found = any_of(mapped_parts(part, lambda each: self._nearest(each, known)))
        for one in (found, followed(found), bare(found)):
            if self._fits({**one, **known}):
                return one
        return {}

    def _fits(self, schema: Schema) -> bool:
        self._num_left -= 1
        if self._num_left < 0:
            return False
        _check_time(self._clock, self._end)
        try:
            self._check(StructuredOutputsParams(json=schema))
        except GrammarTooMuch:
            raise
        except InvalidGrammar:
            return False
        return True


def _check_time(clock: Clock, end: float) -> None:
    if clock() > end:
        raise GrammarTooMuch.because("the schema of tools", "it takes too long")
