"""A proof's record: written as it goes, one line for each cell."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from forerun.bench.proof.proof import Cell


def summary(cells: Sequence[Cell]) -> dict[str, Any]:
    """Figures over all cells."""
    return {
        "num_cells": len(cells),
        "num_different": sum(cell.first_difference is not None for cell in cells),
        "num_tokens": sum(cell.num_tokens for cell in cells),
        "target_passes": sum(cell.target_passes for cell in cells),
        "draft_tokens": sum(cell.draft_tokens for cell in cells),
        "accepted_tokens": sum(cell.accepted_tokens for cell in cells),
    }


def as_json(head: Mapping[str, Any], cells: Sequence[Cell]) -> str:
    """The head indented, then every cell on a line of its own."""
    opened = json.dumps({**head, **summary(cells)}, indent=1, ensure_ascii=False)[:-2]
    rows = ",\n".join("  " + json.dumps(asdict(cell), ensure_ascii=False) for cell in cells)
    return f'{opened},\n "cells": [\n{rows}\n ]\n}}'
