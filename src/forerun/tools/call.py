"""A call that a model made."""

from __future__ import annotations

import json
import secrets
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
        """The arguments by name."""
        found: dict[str, Any] = json.loads(self.arguments)
        return found

    def as_dict(self) -> dict[str, Any]:
        """As it stands in a conversation."""
        function = {"name": self.name, "arguments": self.arguments}
        return {"id": self.id, "type": "function", "function": function}
