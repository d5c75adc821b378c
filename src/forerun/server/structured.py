"""The constraint on an answer, from the fields of each API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from forerun.errors import InvalidOption
from forerun.server.errors import bad_request
from forerun.types import StructuredOutputsParams


class Structure(NamedTuple):
    """A constraint, and the `field` in which the client asked for it."""

    field: str | None = None
    wanted: StructuredOutputsParams | None = None


def structure_of(given: Mapping[str, Any]) -> Structure:
    """Return the constraint in vLLM's `structured_outputs`, or in the API's own field for it."""
    found = list[Structure]()
    if (own := given.get("structured_outputs")) is not None:
        found.append(Structure("structured_outputs", _by_vllm(own)))
    found += [Structure(field, _by_schema(asked)) for field, asked in _formats(given)]
    if len(found) > 1:
        names = " and ".join(str(each.field) for each in found)
        raise bad_request(f"{names} both say what the answer looks like; give one.", found[0].field)
    return found[0] if found else Structure()


def may_take_long(given: Mapping[str, Any]) -> bool:
    """Whether a body's fields need a grammar, which has to be compiled and tried."""
    is_asked = given.get("structured_outputs") or given.get("tools")
    return bool(is_asked) or any(True for _ in _formats(given))


def _formats(given: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the fields in which a client asked for a format other than text, with their values: of
    chat, responses and messages."""
    for name, asked in (
        ("response_format", given.get("response_format", {})),
        ("text.format", given.get("text", {}).get("format", {})),
        ("output_config.format", given.get("output_config", {}).get("format", {})),
    ):
        if asked.get("type", "text") != "text":
            yield name, asked


def _by_vllm(asked: Mapping[str, Any]) -> StructuredOutputsParams | None:
    try:
        return StructuredOutputsParams.of(asked)
    except InvalidOption as error:
        raise bad_request(str(error), "structured_outputs") from None


def _by_schema(asked: Mapping[str, Any]) -> StructuredOutputsParams:
    """Return the constraint for a format; only chat nests the schema under `json_schema`. Without a
    schema the answer is any object."""
    schema = asked.get("json_schema", asked).get("schema")
    if schema is None:
        return StructuredOutputsParams(json_object=True)
    return StructuredOutputsParams(json=schema)
