"""Dataclass fields from which the command line makes its options."""

from __future__ import annotations

from dataclasses import field
from typing import Any, TypeVar

Value = TypeVar("Value")


def option(default: Value, text: str, *flags: str, metavar: str | None = None) -> Value:
    """Declare a field with a default and a help text; `flags` are its names on the command line,
    if they differ from the field's."""
    about = {"help": text, "flags": flags, "metavar": metavar}
    found: Any = field(default=default, metadata=about)
    return found  # type: ignore[no-any-return]  # what type checkers see of it is the default
