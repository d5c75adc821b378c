"""A head's card: how good its guesses were when it was trained."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forerun.drafters.heads.folder import HISTORY
from forerun.errors import InvalidWeights
from forerun.models.hf.json_file import read_json


@dataclass(frozen=True)
class Card:
    """The chance of each guess, given that all before it are accepted, on held-out texts.

    Empty if it was not measured."""

    chances: tuple[float, ...]  # the larger of those for greedy and for drawn tokens

    @classmethod
    def of(cls, folder: Path) -> Card | None:
        """Read the card in a head's folder; None without one, as in heads of other engines."""
        path = folder / HISTORY
        if not path.is_file():
            return None
        calls: Any = read_json(path).get("calls")
        last: Any = calls[-1] if isinstance(calls, list) and calls else None
        last = last if isinstance(last, dict) else {}
        alpha, greedy = last.get("alpha", ()), last.get("greedy", ())
        if not _are_chances(alpha) or not _are_chances(greedy) or len(alpha) != len(greedy):
            raise InvalidWeights(f"{path} is damaged; delete it to go on without what it says.")
        return cls(tuple(float(max(pair)) for pair in zip(alpha, greedy, strict=True)))


def _are_chances(values: Any) -> bool:
    return (
        isinstance(values, list)
        and len(values) > 0
        and all(type(value) in (int, float) and 0 <= value <= 1 for value in values)
    )
