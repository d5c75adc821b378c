"""What a model's file says of it, each value checked as it is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from forerun.errors import ForerunError, InvalidWeights
from forerun.option_checks import is_finite, is_whole

_LARGEST: Final = 1e30


@dataclass(frozen=True)
class Fields:
    """`source` says where they stand; null counts as absent. Names begin with `prefix`."""

    values: Mapping[str, Any]
    source: object
    prefix: str = ""
    error: type[ForerunError] = InvalidWeights

    def get(self, name: str, default: Any = None) -> Any:
        value = self.values.get(self.prefix + name)
        return default if value is None else value

    def integer(self, name: str, default: int | None = None) -> int:
        value = self._given(name, default)
        return int(self.checked(name, value, is_whole(value), "a whole number"))

    def number(self, name: str, default: float | None = None) -> float:
        value = self._given(name, default)
        good = is_finite(value) and abs(value) <= _LARGEST
        return float(self.checked(name, value, good, "a number"))

    def flag(self, name: str, default: bool) -> bool:
        value = self.get(name, default)
        return bool(self.checked(name, value, isinstance(value, bool), "true or false"))

    def _given(self, name: str, default: Any) -> Any:
        value = self.get(name, default)
        if value is None:
            raise self.error(
                f"{self.source}: {self.prefix + name!r} is missing; get or convert the model anew."
            )
        return value

    def checked(self, name: str, value: Any, good: bool, wanted: str) -> Any:
        if not good:
            field, shown = self.prefix + name, repr(value)[:40]
            raise self.error(
                f"{self.source}: {field!r} must be {wanted}, not {shown}; get or convert the model "
                "anew."
            )
        return value
