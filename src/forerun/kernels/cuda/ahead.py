"""A pass that was begun before the host knew what its tokens are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from forerun.kernels.base import Body
from forerun.kernels.cuda.asked_draws import Draws
from forerun.kernels.cuda.drawing import Started
from forerun.kernels.plan import Plan, PlanRow
from forerun.sampling import CoupledDraws


@dataclass
class Ahead:
    """One token for each request: what the pass before it drew, in a slot that was free.

    Where a request has ended meanwhile, its row is for nobody. Whatever else changed, the pass is
    for nobody as a whole; the keys and values that it wrote lie where the next pass puts its own.
    """

    body: Body
    before: Plan  # the pass before it
    draws: Draws  # of that
    started: Started
    logits: torch.Tensor
    tokens: Sequence[int] = field(default_factory=tuple)  # which the pass before it drew

    def rows_for(self, body: Body, plan: Plan, draws: Draws) -> list[int] | None:
        """Which of its rows are those of `plan`; None where one of them is not there."""
        if body != self.body:
            return None
        places = {id(row.table): idx for idx, row in enumerate(self.before.rows)}
        rows = [places.get(id(row.table), -1) for row in plan.rows]
        fitting = zip(rows, plan.rows, draws, strict=True)
        return rows if all(self._fits(*one) for one in fitting) else None

    def _fits(self, idx: int, row: PlanRow, draw: CoupledDraws | None) -> bool:
        if idx < 0 or draw is None:
            return False
        before, last = self.before.rows[idx], self.draws[idx]
        assert last is not None
        assert self.before.next_slots is not None
        return (
            len(row) == 1
            and row.span.tree.is_chain
            and row.span.tokens[-1] == self.tokens[idx]
            and len(row.slots) == len(before.slots) + 1
            and int(row.slots[-1]) == self.before.next_slots[idx]
            and draw.positions == [last.positions[-1] + 1]
            and draw.params is last.params
            and draw.noise is last.noise
        )
