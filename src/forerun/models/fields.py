"""Values of a config or of file metadata, each checked as it is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from forerun.errors import ForerunError, InvalidWeights
from forerun.option_checks import is_finite, is_whole

_LARGEST: Final = 1e30
_LARGEST_SIZE: Final = (1 << 31) - 1


@dataclass(frozen=True)
class Fields:
    """Named values with a typed, checked reader for each kind; null counts as absent.

    `prefix` is put before each name. Errors name `source` and end with `advice`."""

    values: Mapping[str, Any]
    source: object
    prefix: str = ""
    error: type[ForerunError] = InvalidWeights
    advice: str = "get or convert the model anew"

    def get(self, name: str, default: Any = None) -> Any:
        value = self.values.get(self.prefix + name)
        return default if value is None else value

    def integer(self, name: str, default: int | None = None) -> int:
        value = self._given(name, default)
        return int(self.checked(name, value, is_whole(value), "a whole number"))

    def size(self, name: str, default: int | None = None, least: int = 1) -> int:
        value = self._given(name, default)
        good = is_whole(value) and least <= value <= _LARGEST_SIZE
        return int(self.checked(name, value, good, f"a whole number ≥ {least}"))

    def integers(self, name: str) -> tuple[int, ...]:
        value = self._given(name, None)
        good = isinstance(value, list) and len(value) > 0 and all(map(is_whole, value))
        return tuple(self.checked(name, value, good, "a list of whole numbers"))

    def number(self, name: str, default: float | None = None) -> float:
        value = self._given(name, default)
        good = is_finite(value) and abs(value) <= _LARGEST
        return float(self.checked(name, value, good, "a number"))

    def positive(self, name: str, default: float | None = None) -> float:
        value = self.number(name, default)
        return float(self.checked(name, value, value > 0, "a number above 0"))

    def text(self, name: str, default: str | None = None) -> str:
        value = self._given(name, default)
        return str(self.checked(name, value, isinstance(value, str), "a string"))

    def inner(self, name: str) -> Fields:
        """Return the object of this name, or an empty one."""
        value = self.get(name, {})
        self.checked(name, value, isinstance(value, dict), "an object")
        return Fields(value, f"{self.source}, {name!r}", "", self.error, self.advice)

    def flag(self, name: str, default: bool) -> bool:
        value = self.get(name, default)
        return bool(self.checked(name, value, isinstance(value, bool), "true or false"))

    def _given(self, name: str, default: Any) -> Any:
        value = self.get(name, default)
        if value is None:
            raise self.error(f"{self.source}: {self.prefix + name!r} is missing; {self.advice}.")
        return value

    def checked(self, name: str, value: Any, good: bool, wanted: str) -> Any:
        if not good:
            field, shown = self.prefix + name, repr(value)[:40]
            raise self.error(
                f"{self.source}: {field!r} must be {wanted}, not {shown}; {self.advice}."
            )
        return value
