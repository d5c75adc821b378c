"""Reads the fields of a parsed body."""

from __future__ import annotations

from typing import Any, Final

from forerun.server.errors import ApiError, bad_request
from forerun.server.fields.field import Endpoint, Field, Treatment
from forerun.server.fields.kinds import LENIENT, unknown_key
from forerun.server.fields.table import by_name

# Names for the same thing in various endpoints and servers.
_ALIKE: Final = (
    ("prompt", "messages", "input"),
    ("max_tokens", "max_completion_tokens", "max_output_tokens", "max_new_tokens", "n_predict"),
    ("stop", "stop_sequences"),
    ("structured_outputs", "grammar", "json_schema", "guided_decoding_backend"),
    ("chat_template_kwargs", "enable_thinking"),
)


def read_fields(endpoint: Endpoint, body: Any, *, lenient: bool = False) -> dict[str, Any]:
    """Return the honoured fields of the body; null means not given.

    With `lenient`, unknown fields are ignored, also those of options, tools and other objects.
    """
    before = LENIENT.set(lenient)
    try:
        return _read_all(by_name(endpoint), body, lenient=lenient)
    finally:
        LENIENT.reset(before)


def _read_all(known: dict[str, Field], body: Any, *, lenient: bool) -> dict[str, Any]:
    if not isinstance(body, dict):
        raise bad_request("the body is not a JSON object; send one.")
    given: dict[str, Any] = {}
    for name, value in body.items():
        field = known.get(name)
        if field is None:
            if not lenient:
                raise unknown_key(name, "", _meant(name, known))
        elif value is not None:
            read = _read(field, value)
            if field.treatment is Treatment.HONOURED:
                given[name] = read
    for field in known.values():
        if field.is_required and field.name not in given:
            raise bad_request(f"{field.name} is missing; give {field.kind.words}.", field.name)
    return given


def _meant(name: str, known: dict[str, Field]) -> dict[str, Field]:
    """Return the fields that an unknown name may mean: this endpoint's names for the same thing if
    it has any, else all fields that are not refused."""
    usable = {one: at for one, at in known.items() if at.treatment is not Treatment.REFUSED}
    alike = next((names for names in _ALIKE if name in names), ())
    honoured = [
        one for one in alike if one in usable and usable[one].treatment is Treatment.HONOURED
    ]
    return {one: usable[one] for one in honoured} or usable


def _read(field: Field, value: Any) -> Any:
    try:
        return field.kind.read(value, field.name)
    except ApiError:
        if field.treatment is not Treatment.REFUSED:
            raise
        hint = field.note or "leave it out"
        raise bad_request(
            f"{field.name} is not supported here; {hint}.", field.name, field.code
        ) from None
