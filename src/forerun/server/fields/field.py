"""One field of a request's body, and how the server treats it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from forerun.server.fields.kinds import Kind


class Endpoint(StrEnum):
    """The endpoint to which a body is sent."""

    COMPLETIONS = "completions"
    CHAT = "chat"
    RESPONSES = "responses"
    INPUT_TOKENS = "input_tokens"
    MESSAGES = "messages"
    COUNT_TOKENS = "count_tokens"
    TOKENIZE = "tokenize"
    DETOKENIZE = "detokenize"


class Treatment(StrEnum):
    HONOURED = "honoured"
    NO_EFFECT = "accepted without effect"
    REFUSED = "400"


@dataclass(frozen=True)
class Field:
    """`kind` says which values are allowed. For a refused field these are the values that mean that
    it is not used, and `code` is the error's for any other."""

    name: str
    treatment: Treatment
    kind: Kind
    on: tuple[Endpoint, ...]
    note: str = ""
    is_required: bool = False
    code: str | None = None
