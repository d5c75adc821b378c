"""Where a pass spends its time: its steps grouped by kind, for benchmarks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from forerun.kernels.cpu.codegen.step import NUM_HEADER_FIELDS
from forerun.kernels.cpu.runtime.workers import Workers

# The kind of an operation, by its name up to the dash.
KINDS: Final = {
    "linear": "product",
    "attend": "attention",
    "rope_write": "attention",
    "add_norm": "norm",
    "silu_mul": "norm",
    "digits": "norm",
    "embed": "rows",
    "select": "rows",
    "place": "rows",
    "pick": "rows",
    "gated_row": "rows",
    "best_piece": "draw",
    "best_row": "draw",
    "noisy_piece": "draw",
    "noisy_row": "draw",
}
WHOLE: Final = "whole"  # the kind of all steps
_ATTENTION: Final = "attention"
_NUM_ROWS, _ROW_BYTES = NUM_HEADER_FIELDS, NUM_HEADER_FIELDS + 4  # fields of a product


@dataclass(frozen=True)
class Kind:
    """All steps of one kind in a pass; running them alone leaves garbage in the buffers.

    For attention, `steps` are all others: the whole pass without attention. Run alone, attention
    would meet one layer's queries with the keys of all layers, and get weights so small that
    processors are slow with them. Its time includes the digits that it writes of its rows.
    """

    name: str
    steps: npt.NDArray[np.int64]
    weight_bytes: int
    workers: Workers
    scratch_bytes: int

    @property
    def is_left_out(self) -> bool:
        return self.name == _ATTENTION

    def run(self) -> None:
        self.workers.run(self.steps, self.scratch_bytes)


def kinds_of(
    steps: npt.NDArray[np.int64],
    name_of: Callable[[int], str],
    workers: Workers,
    scratch_bytes: int,
) -> list[Kind]:
    names = [name_of(int(step[0])).partition("-")[0] for step in steps]
    found = []
    for kind in (*dict.fromkeys(KINDS.values()), WHOLE):
        mine = np.array([KINDS[name] == kind or kind == WHOLE for name in names])
        products = steps[np.array([name == "linear" for name in names]) & mine]
        weight_bytes = int((products[:, _NUM_ROWS] * products[:, _ROW_BYTES]).sum())
        if mine.any():
            chosen = np.ascontiguousarray(steps[~mine if kind == _ATTENTION else mine])
            found.append(Kind(kind, chosen, weight_bytes, workers, scratch_bytes))
    return found
