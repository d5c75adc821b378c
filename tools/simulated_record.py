"""The controller's record on a simulated clock.

python tools/simulated_record.py write bench/records/controller-simulated.json
python tools/simulated_record.py table bench/records/controller-simulated.json
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

from forerun.cli.bench.record_head import commit_of, versions
from recorded_worlds import HELD_OUT, Cell, every_cell, figures

TO_PLAIN: Final = 0.98  # the aims of every cell
TO_BEST: Final = 0.95
_NUM_PROCESSES: Final = 2

Row = dict[str, Any]


def measured(cell: Cell, *, is_noisy: bool) -> Row:
    found = figures(cell.world(is_noisy=is_noisy))
    ratios = {key: round(value, 4) for key, value in asdict(found).items()}
    return {**asdict(cell), "is_noisy": is_noisy, **ratios}


def is_missed(row: Row) -> bool:
    return bool(row["to_plain"] < TO_PLAIN or row["to_best"] < TO_BEST)


def measure(cells: Sequence[Cell]) -> Iterator[Row]:
    """Yield the rows of all cells, without noise and then with it."""
    with ProcessPoolExecutor(_NUM_PROCESSES) as pool:
        for is_noisy in (False, True):
            yield from pool.map(partial(measured, is_noisy=is_noisy), cells, chunksize=25)


def write(path: Path) -> None:
    commit = commit_of(Path(__file__).parent)  # of the running code
    rows = list(measure(list(every_cell())))
    record = {
        "commit": commit,
        "versions": versions({}),
        "seed": HELD_OUT,
        "asked": {"to_plain": TO_PLAIN, "to_best": TO_BEST},
        "num_missed": sum(map(is_missed, rows)),
        "cells": rows,
    }
    lines = json.dumps(record, indent=1, ensure_ascii=False).replace("\n   ", " ")
    path.write_text(lines + "\n", encoding="utf-8")


def table(rows: Sequence[Row]) -> str:
    """Return the table of docs/controller.md: smallest / median."""
    lines = [
        "| | cells | to plain | to the best fixed depth | missed |",
        "|---|---|---|---|---|",
    ]
    for is_noisy in (False, True):
        for num_slots in (1, 4, 16):
            mine = [r for r in rows if (r["is_noisy"], r["num_slots"]) == (is_noisy, num_slots)]
            name = f"{num_slots} request{'s' * (num_slots > 1)}{', noisy' * is_noisy}"
            plain, best = _span(r["to_plain"] for r in mine), _span(r["to_best"] for r in mine)
            missed = sum(map(is_missed, mine))
            lines.append(f"| {name} | {len(mine)} | {plain} | {best} | {missed} |")
    return "\n".join(lines)


def misses(rows: Sequence[Row]) -> str:
    return "\n".join(
        f"- {r['curve']}, draft cost {r['draft_cost']}, {r['text']} × {r['num_slots']}"
        f"{', noisy' * r['is_noisy']}: {r['to_plain']:.3f} of plain, {r['to_best']:.3f} of the best"
        for r in sorted(rows, key=lambda r: r["to_best"])
        if is_missed(r)
    )


def _span(ratios: Iterable[float]) -> str:
    known = list(ratios)
    return f"{min(known):.3f} / {median(known):.3f}"


def main(action: str, path: str) -> None:
    if action == "write":
        write(Path(path))
    rows = json.loads(Path(path).read_text(encoding="utf-8"))["cells"]
    print(table(rows), misses(rows), sep="\n\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
