"""Functions of responses in namespaces: the model knows each by one name, and clients by two."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any


def functions(tools: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """All that may be called, under the names that the model sees."""
    for tool in tools:
        if tool["type"] == "function":
            yield tool
        elif tool["type"] == "namespace":
            for inner in tool["tools"]:
                yield {**inner, "name": joined(inner["name"], tool["name"])}


def joined(name: str, namespace: str | None) -> str:
    return name if namespace is None else f"{namespace}__{name}"


def parted(tools: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """What a call says of the function, by the name that the model sees; of those alone that are
    in a namespace."""
    return {
        joined(inner["name"], tool["name"]): {"namespace": tool["name"], "name": inner["name"]}
        for tool in tools
        if tool["type"] == "namespace"
        for inner in tool["tools"]
    }
