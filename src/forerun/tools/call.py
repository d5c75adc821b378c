"""A call that a model made."""

from __future__ import annotations

import json
import math
import secrets
import sys
from dataclasses import dataclass, field
from typing import Any


def fresh_call_id(num_chars: int | None = None) -> str:
    """Some templates take only letters and digits, and so many of them."""
    if num_chars is None:
        return f"call_{secrets.token_hex(12)}"
    return secrets.token_hex(num_chars)[:num_chars]


@dataclass(frozen=True)
class ToolCall:
    """`arguments` is JSON, as the model wrote it; cut off where the answer was."""

    name: str
    arguments: str
    id: str = field(default_factory=fresh_call_id)

    @property
    def values(self) -> dict[str, Any]:
        """The arguments by name; numbers beyond those of floats are the largest float."""
        found: dict[str, Any] = json.loads(
            self.arguments, parse_float=_finite, parse_int=_whole_or_finite
        )
        return found

    def as_dict(self) -> dict[str, Any]:
        """As it stands in a conversation."""
        function = {"name": self.name, "arguments": self.arguments}
        return {"id": self.id, "type": "function", "function": function}


def _finite(digits: str) -> float:
    number = float(digits)
    return math.copysign(sys.float_info.max, number) if math.isinf(number) else number


def _whole_or_finite(digits: str) -> float:
    """Python refuses to read whole numbers of thousands of digits."""
    most = sys.get_int_max_str_digits()
    return _finite(digits) if 0 < most < len(digits) else int(digits)
