"""`tool_choice`: whether an answer may or must call tools, and which."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from forerun.errors import InvalidToolChoice, unknown_name
from forerun.tools.tool import Tool

MODES: Final = ("auto", "required", "none")


@dataclass(frozen=True)
class ToolChoice:
    """`names` are the tools that may be called; None: all. `is_once`: the client named a single
    function, which is called exactly once."""

    mode: str = "auto"
    names: tuple[str, ...] | None = None
    is_once: bool = False

    @classmethod
    def of(cls, given: Any) -> ToolChoice:
        """Parse a mode, one function, or allowed tools, as chat or responses write them."""
        if given is None or given in MODES:
            return cls(given or "auto")
        if isinstance(given, Mapping):
            if given.get("type") == "function":
                return cls("required", (_name_in(given),), is_once=True)
            if given.get("type") == "allowed_tools":
                allowed = given.get("allowed_tools", given)
                if not isinstance(allowed, Mapping):
                    raise _no_choice(given)
                names = tuple(map(_name_in, _listed(allowed.get("tools"))))
                if allowed.get("mode", "auto") in MODES[:2] and names:
                    return cls(allowed.get("mode", "auto"), names)
        raise _no_choice(given)

    def among(self, tools: Sequence[Tool]) -> list[Tool]:
        """Return those of `tools` that may be called."""
        if not tools and self.mode == "required":
            raise InvalidToolChoice(
                "tool_choice asks for a call, and there are no tools; give some."
            )
        if not tools or self.mode == "none":
            return []
        for name in self.names or ():
            if all(tool.name != name for tool in tools):
                known = [tool.name for tool in tools]
                raise InvalidToolChoice(str(unknown_name("tool in tool_choice", name, known)))
        return [tool for tool in tools if self.names is None or tool.name in self.names]


def _name_in(given: Any) -> str:
    """Return the function's name; chat nests it under `function`, responses do not."""
    found = given.get("function", given) if isinstance(given, Mapping) else None
    name = found.get("name") if isinstance(found, Mapping) else None
    if not isinstance(name, str):
        raise _no_choice(given)
    return name


def _listed(given: Any) -> Iterable[Any]:
    return given if isinstance(given, list | tuple) else ()


def _no_choice(given: Any) -> InvalidToolChoice:
    return InvalidToolChoice(
        f"tool_choice={reprlib.repr(given)} is not allowed; give auto, required, none, or "
        '{"type": "function", "function": {"name": …}}.'
    )
