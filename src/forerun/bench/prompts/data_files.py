"""The prompt files in the package; data/README.md lists their sources."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from importlib import resources
from random import Random
from typing import Any, TypeVar

Row = TypeVar("Row")


def read_rows(name: str) -> list[dict[str, Any]]:
    """Return the rows of data/<name>.jsonl, in order."""
    file = resources.files("forerun.bench.prompts") / "data" / f"{name}.jsonl"
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def endlessly(rows: Sequence[Row], random: Random) -> Iterator[Row]:
    """Yield all rows in random order, again and again."""
    while True:
        yield from random.sample(rows, len(rows))
