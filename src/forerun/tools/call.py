"""A call that a model made."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, field
from typing import Any


def fresh_call_id(num_chars: int = 24) -> str:
    """Letters and digits alone, since some templates take no others."""
    return secrets.token_hex(num_chars // 2 + 1)[:num_chars]


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
