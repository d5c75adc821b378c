"""One field of a request's body, and what becomes of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from forerun.server.fields.kinds import Kind


class Endpoint(StrEnum):
    """Whose body it is."""

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
    """`kind` is what may stand there; of a refused field, what means that it is not used, and
    `code` is that of the error."""

    name: str
    treatment: Treatment
    kind: Kind
    on: tuple[Endpoint, ...]
    note: str = ""
    is_required: bool = False
    code: str | None = None
