"""The record of `forerun bench speculation`: a JSON file of what was measured, where and how."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, NotRequired, TypedDict

from forerun.bench.measure.side_by_side import Measurement
from forerun.bench.peers.divergence import Divergence
from forerun.bench.records.cells import Cell
from forerun.bench.records.typed_json import Misfit, as_type
from forerun.errors import ForerunError
from forerun.files import MAX_JSON_BYTES, read_text, write_whole

SCHEMA: Final = "forerun-bench/1"


class InvalidRecord(ForerunError, ValueError):
    """A file is not a bench record, or cannot be compared with another."""


class RunRecord(TypedDict):
    """One answer; `rounds` are [guesses, depth, accepted, number of such rounds]."""

    workload: str
    pair: int
    contender: str
    digest: str
    prompt: NotRequired[str]
    num_tokens: NotRequired[int]
    ttft_s: NotRequired[float]
    seconds: NotRequired[float]
    rounds: NotRequired[list[list[int]]]


class WorkloadRecord(TypedDict):
    digest: str
    kind: NotRequired[str]
    num_prompts: NotRequired[int]


@dataclass(frozen=True)
class Record:
    """`runs` are the single answers; `cells` sum them up; `is_complete` is False after ^C."""

    created: str
    commit: str | None
    machine: Mapping[str, Any]
    versions: Mapping[str, str]
    model: Mapping[str, Any]
    settings: Mapping[str, Any]
    workloads: Mapping[str, WorkloadRecord]
    contenders: Mapping[str, Mapping[str, Any]]
    costs: Mapping[str, Any]
    runs: Sequence[RunRecord]
    cells: Sequence[Cell]
    divergences: Sequence[Divergence]
    is_complete: bool

    def as_dict(self) -> dict[str, Any]:
        return {"schema": SCHEMA, **asdict(self), "cells": [cell.as_dict() for cell in self.cells]}

    def cell(self, workload: str, contender: str) -> Cell | None:
        found = [c for c in self.cells if (c.workload, c.contender) == (workload, contender)]
        return found[0] if found else None


def run_record(m: Measurement) -> RunRecord:
    run = m.run
    rounds: dict[tuple[int, int, int], int] = {}
    for p in run.passes:
        key = (p.num_guesses, p.depth, p.num_accepted)
        rounds[key] = rounds.get(key, 0) + 1
    return {
        "workload": m.workload,
        "pair": m.pair_idx,
        "prompt": m.prompt,
        "contender": m.contender,
        "num_tokens": len(run.tokens),
        "digest": run.digest,
        "ttft_s": round(run.ttft, 6),
        "seconds": round(run.seconds, 6),
        "rounds": [[*key, num] for key, num in sorted(rounds.items())],
    }


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    write_whole(path, json.dumps(values, indent=1, ensure_ascii=False, allow_nan=False))


def read_record(path: Path) -> Record:
    """Read a record of this schema; raise `InvalidRecord` for anything else."""
    return parse_record(path, read_json(path))


def parse_record(path: Path, values: Any) -> Record:
    schema = values.get("schema") if isinstance(values, dict) else None
    if schema != SCHEMA:
        raise InvalidRecord(
            f"{path} is no record of speculation (its schema is {schema!r}, not {SCHEMA!r}); "
            "give a file that `forerun bench speculation --json` wrote."
        )
    record: Record = checked(Record, path, values)
    return record


def checked(kind: Any, path: Path, values: Any) -> Any:
    try:
        return as_type(kind, values)
    except Misfit as place:
        raise InvalidRecord(
            f"{path} is damaged: {place} is missing or wrong; measure again."
        ) from None


def read_json(path: Path) -> Any:
    try:
        return json.loads(read_text(path, MAX_JSON_BYTES))
    except OSError as error:
        reason = error.strerror or "the file cannot be opened"
    except (ValueError, RecursionError):
        reason = "it is not JSON"
    raise InvalidRecord(
        f"{path} cannot be read as a bench record: {reason}; "
        "give a file that `forerun bench … --json` wrote."
    )
