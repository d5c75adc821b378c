"""The prompts that travel with the package; data/README.md says where they come from."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from importlib import resources
from random import Random
from typing import Any, TypeVar

Row = TypeVar("Row")


def read_rows(name: str) -> list[dict[str, Any]]:
    """The rows of data/<name>.jsonl, in order."""
    file = resources.files("forerun.bench.prompts") / "data" / f"{name}.jsonl"
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def endlessly(rows: Sequence[Row], random: Random) -> Iterator[Row]:
    """All rows in a random order, and again."""
    while True:
        yield from random.sample(rows, len(rows))
