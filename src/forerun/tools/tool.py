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

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,130}")  # two names of 64, joined by `__`
_NO_PARAMETERS: Final = '{"type": "object", "properties": {}, "additionalProperties": false}'


@dataclass(frozen=True)
class Tool:
    """`parameters` is the JSON schema of the arguments, as text. Keywords that cannot be enforced
    are an error if the tool `is_strict`, and are dropped otherwise."""

    name: str
    description: str | None = None
    parameters: str | None = None
    is_strict: bool = False

    @classmethod
    def of(cls, given: Any) -> Tool:
        """Parse OpenAI's form, {"type": "function", "function": {"name": …}}."""
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
        """The arguments' schema. A function without parameters takes no arguments, and objects are
        closed: only names in `properties` are allowed, unless the schema says otherwise."""
        told = without_notes(json.loads(self.parameters or _NO_PARAMETERS))
        return closed({**told, "type": "object"})

    def as_dict(self) -> dict[str, Any]:
        """Return the tool in OpenAI's form, which chat templates read."""
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
