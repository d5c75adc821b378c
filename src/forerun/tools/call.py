"""A call that a model made."""

from __future__ import annotations

import json
import math
import secrets
import sys
from dataclasses import dataclass, field
from typing import Any


def fresh_call_id(num_chars: int | None = None) -> str:
    """Return a random id. With `num_chars` it has that many letters and digits and nothing else,
    as some templates require."""
    if num_chars is None:
        return f"call_{secrets.token_hex(12)}"
    return secrets.token_hex(num_chars)[:num_chars]


@dataclass(frozen=True)
class ToolCall:
    """`arguments` is JSON text as the model wrote it, incomplete if the answer was cut off."""

    name: str
    arguments: str
    id: str = field(default_factory=fresh_call_id)

    @property
    def values(self) -> dict[str, Any]:
        """The arguments by name; numbers that overflow a float become the largest float."""
        found: dict[str, Any] = json.loads(
            self.arguments, parse_float=_finite, parse_int=_whole_or_finite
        )
        return found

    def as_dict(self) -> dict[str, Any]:
        """Return the call in OpenAI's form, as messages contain it."""
        function = {"name": self.name, "arguments": self.arguments}
        return {"id": self.id, "type": "function", "function": function}


def _finite(digits: str) -> float:
    number = float(digits)
    return math.copysign(sys.float_info.max, number) if math.isinf(number) else number


def _whole_or_finite(digits: str) -> float:
    """Parse an integer; one with more digits than Python's `int` accepts becomes a float."""
    most = sys.get_int_max_str_digits()
    return _finite(digits) if 0 < most < len(digits) else int(digits)
