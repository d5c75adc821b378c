"""What the other benches wrote: `kernels`, `passes`, `startup`, `batch`, `parity`, and proofs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from forerun.bench.records.record import InvalidRecord, Record, parse_record, read_json
from forerun.bench.records.shape import REPORTS, misfit

_HEAD: Final = {"machine": dict, "is_complete": bool}
# Records that do not say what was measured are known by what they hold.
_KNOWN_BY: Final = {"products": "kernels", "passes": "passes", "num_different": "proof"}


def read_any(path: Path) -> Record | Mapping[str, Any]:
    """A record of speculation, or a report of another bench, which says what was `measured`."""
    values = read_json(path)
    kind = _kind(values)
    if kind is None:
        return parse_record(path, values)
    shape = REPORTS.get(kind)
    place = "measured" if shape is None else misfit(values, {**_HEAD, **shape})
    if place is not None:
        raise InvalidRecord(f"{path} is damaged: {place} is missing or wrong; measure again.")
    return {"measured": kind, **values}


def has_other_tokens(report: Mapping[str, Any]) -> bool:
    """Whether a token came out otherwise than it must; benches that compare none have none."""
    match report["measured"]:
        case "parity":
            return bool(report["num_same"] < len(report["prompts"]))
        case "batch":
            parts = (report.get("together"), report.get("load"))
            return any(part is not None and not part["same_tokens"] for part in parts)
        case "proof":
            return bool(report["num_different"])
    return False


def _kind(values: Any) -> str | None:
    if not isinstance(values, dict) or "schema" in values:
        return None
    if "measured" in values:
        return str(values["measured"])
    return next((kind for key, kind in _KNOWN_BY.items() if key in values), None)
