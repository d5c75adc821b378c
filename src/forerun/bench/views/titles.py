"""What stands above every table: what was measured, of which model, where."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_ROUNDING: Final = ("quantization", "activations")


def title(
    what: str,
    model: Mapping[str, Any],
    machine: Mapping[str, Any],
    settings: Mapping[str, Any],
    *,
    is_complete: bool,
) -> str:
    name = ": ".join(part for part in (what, model.get("name")) if part)
    unfinished = "" if is_complete else " (interrupted)"
    return f"{name} on {machine.get('cpu')}{rounding(settings)}{unfinished}"


def rounding(settings: Mapping[str, Any]) -> str:
    """How weights and activations were rounded, where the record says so."""
    asked = [f", {name} {settings[name]}" for name in _ROUNDING if settings.get(name) is not None]
    return "".join(asked)
