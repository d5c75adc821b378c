"""What was rounded beyond what a model's file and the machine ask for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_OPTIONS: Final = ("quantization", "activations")


def rounding_words(settings: Mapping[str, Any]) -> str:
    """For titles: like ", activations int8"; nothing where nothing was."""
    asked = [f", {name} {settings[name]}" for name in _OPTIONS if settings.get(name) is not None]
    return "".join(asked)
