"""A function that a model may call."""

from __future__ import annotations

import json
import re
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from forerun.errors import InvalidOption
from forerun.grammars.schemas import closed
from forerun.option_checks import is_unicode
from forerun.tools.schemas import without_notes

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,130}")  # two of 64 and what joins them
_NO_PARAMETERS: Final = '{"type": "object", "properties": {}, "additionalProperties": false}'


@dataclass(frozen=True)
class Tool:
    """`parameters` is the text of a JSON schema of an object, which arguments fit. Keywords that
    cannot be followed are an error where it `is_strict`, and else are left out."""

    name: str
    description: str | None = None
    parameters: str | None = None
    is_strict: bool = False

    @classmethod
    def of(cls, given: Any) -> Tool:
        """From OpenAI's form: {"type": "function", "function": {"name": …}}."""
        function = given.get("function") if isinstance(given, Mapping) else None
        if not isinstance(function, Mapping) or given.get("type", "function") != "function":
            raise InvalidOption(
                f"{reprlib.repr(given)} is no tool; give "
                '{"type": "function", "function": {"name": …, "parameters": …}}.'
            )
        name, description = function.get("name"), function.get("description")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InvalidOption(
                f"a tool cannot be called {reprlib.repr(name)}; give 1 to 130 letters, digits, "
                f"'_', '-' and '.'."
            )
        if not isinstance(description, str | None) or not is_unicode(description or ""):
            raise InvalidOption(f"the description of tool {name!r} is no text; give one.")
        parameters = function.get("parameters")
        text = None if parameters is None else _schema_text(name, parameters)
        return cls(name, description, text, function.get("strict") is True)

    @property
    def schema(self) -> dict[str, Any]:
        """Of its arguments: a function without parameters takes none, and no function takes what it
        does not tell of."""
        told = without_notes(json.loads(self.parameters or _NO_PARAMETERS))
        return closed({**told, "type": "object"})

    def as_dict(self) -> dict[str, Any]:
        """As templates show it."""
        function: dict[str, Any] = {"name": self.name}
        if self.description is not None:
            function["description"] = self.description
        if self.parameters is not None:
            function["parameters"] = json.loads(self.parameters)
        return {"type": "function", "function": function}


def _schema_text(name: str, parameters: Any) -> str:
    try:
        text = json.dumps(parameters, allow_nan=False)
        _ = without_notes(parameters)
    except (TypeError, ValueError):
        text = ""
    except RecursionError:
        raise InvalidOption(
            f"the parameters of tool {name!r} are nested too deep; flatten them."
        ) from None
    if not text or not isinstance(parameters, Mapping):
        raise InvalidOption(f"the parameters of tool {name!r} are no JSON schema; give a mapping.")
    kind = parameters.get("type", "object")
    if kind != "object" and not (isinstance(kind, list) and "object" in kind):
        raise InvalidOption(
            f"the parameters of tool {name!r} are of type {reprlib.repr(parameters['type'])}; "
            f"a function takes an object."
        )
    return text
