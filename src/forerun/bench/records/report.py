"""Reports of the other benches (`acceptance`, `heads`, `kernels`, `passes`, `gpu`, `startup`,
`batch`, `parity`, `serve`), of proofs and of tools."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypedDict

from forerun.bench.records.record import (
    InvalidRecord,
    Record,
    checked,
    parse_record,
    read_json,
)

Report = Mapping[str, Any]


class _Head(TypedDict):
    measured: str
    machine: dict[str, Any]
    is_complete: bool


# Reports without "measured" are recognised by a key.
_KNOWN_BY: Final = {
    "products": "kernels",
    "passes": "passes",
    "num_different": "proof",
    "num_missed": "simulation",
}


def read_any(path: Path) -> Record | Report:
    """Read a record of speculation, or the report of another bench, with what it `measured`."""
    values = read_json(path)
    if isinstance(values, dict) and "schema" in values:
        return parse_record(path, values)
    if not isinstance(values, dict):
        raise _no_record(path)
    for key, kind in _KNOWN_BY.items():
        if key in values:
            values.setdefault("measured", kind)
    if "measured" not in values:
        raise _no_record(path)
    if values["measured"] == "simulation":  # has no machine, and is written only when complete
        values = {"machine": {}, "is_complete": True, **values}
    report: Report = checked(_Head, path, values)
    return report


def _no_record(path: Path) -> InvalidRecord:
    return InvalidRecord(
        f"{path} is no record of a bench; give a file that `forerun bench … --json` wrote."
    )


def has_other_tokens(report: Report) -> bool:
    """Whether a report has tokens that differ from what they must be, if it compares any."""
    match report["measured"]:
        case "parity":
            return bool(report["num_same"] < len(report["prompts"]))
        case "batch":
            parts = (report.get("together"), report.get("load"))
            return any(part is not None and not part["same_tokens"] for part in parts)
        case "serve":
            parts = (report.get("together"), report.get("prediction"))
            return any(part is not None and not part["same_text"] for part in parts)
        case "gpu":
            oracle = report["oracle"] or {}
            drafted = oracle.get("draft", {}).get("runs", ())
            parts = (report["answers"], oracle.get("oracle"), *drafted)
            rows = sum(shape["num_rows_different"] for shape in report["shapes"])
            is_far = report.get("numerics") is not None and not report["numerics"]["is_near"]
            return bool(rows or is_far or any(part and part["num_different"] for part in parts))
        case "proof":
            return bool(report["num_different"])
    return False
