"""Fields of a dataclass that a user can set; the command line makes its options from them."""

from __future__ import annotations

from dataclasses import field
from typing import Any, TypeVar

Value = TypeVar("Value")


def option(default: Value, text: str, *flags: str, metavar: str | None = None) -> Value:
    """A default and what the option is; `flags` where the command line calls it otherwise."""
    about = {"help": text, "flags": flags, "metavar": metavar}
    found: Any = field(default=default, metadata=about)
    return found  # type: ignore[no-any-return]  # what type checkers see of it is the default
