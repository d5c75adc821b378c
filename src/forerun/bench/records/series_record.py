"""What `forerun bench batch`, `startup` and `parity` wrote, as far as it is shown again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from forerun.bench.records.record import InvalidRecord, read_json
from forerun.bench.records.shape import VERDICTS, misfit
from forerun.bench.rounding import rounding_words
from forerun.bench.verdicts import Outcome

_SERIES: Final = {
    "measured": str,
    "machine": dict,
    "model": dict,
    "settings": dict,
    "is_complete": bool,
} | VERDICTS


@dataclass(frozen=True)
class SeriesRecord:
    title: str
    verdicts: Sequence[Outcome]


def read_series(path: Path) -> SeriesRecord | None:
    """None where the file is something else."""
    values = read_json(path)
    if not isinstance(values, dict) or "measured" not in values:
        return None
    place = misfit(values, _SERIES)
    if place is not None:
        raise InvalidRecord(f"{path} is damaged: {place} is missing or wrong; measure again.")
    unfinished = "" if values["is_complete"] else " (interrupted)"
    return SeriesRecord(
        f"{values['measured']}: {values['model'].get('name')} on "
        f"{values['machine'].get('cpu')}{rounding_words(values['settings'])}{unfinished}",
        [Outcome(v["requirement"], v["found"], v["passed"]) for v in values["verdicts"]],
    )
