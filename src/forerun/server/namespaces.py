"""Functions in namespaces (responses): the model sees one name, clients a namespace and a name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any


def functions(tools: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield all functions, under the names that the model sees."""
    for tool in tools:
        if tool["type"] == "function":
            yield tool
        elif tool["type"] == "namespace":
            for inner in tool["tools"]:
                yield {**inner, "name": joined(inner["name"], tool["name"])}


def joined(name: str, namespace: str | None) -> str:
    return name if namespace is None else f"{namespace}__{name}"


def parted(tools: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """Return namespace and name of the functions in namespaces, by the name that the model sees."""
    return {
        joined(inner["name"], tool["name"]): {"namespace": tool["name"], "name": inner["name"]}
        for tool in tools
        if tool["type"] == "namespace"
        for inner in tool["tools"]
    }
