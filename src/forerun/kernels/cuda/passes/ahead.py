"""A pass that was begun before the host knew what its tokens are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import torch

from forerun.kernels.base import Body
from forerun.kernels.cuda.asked_draws import Draws
from forerun.kernels.cuda.drawing import Best, Started
from forerun.kernels.cuda.heads.given import SentOut
from forerun.kernels.plan import Plan, PlanRow
from forerun.sampling import CoupledDraws

_NOBODY: Final = CoupledDraws.greedy(1)


class Next(NamedTuple):
    """One request's next token: what the pass under way draws for it."""

    row: PlanRow  # of the pass under way
    draw: CoupledDraws
    drawn: int  # the row of that pass in which it is
    slot: int  # where it goes


@dataclass
class Ahead:
    """Where a request has ended meanwhile, its row is for nobody. Whatever else changed, the pass
    is for nobody as a whole; the keys and values that it wrote lie where others will be put.

    The pass needs a token, and what changes its logits is known once that is: then they are drawn
    from when the pass is asked for, while the device works on it.
    """

    body: Body
    parts: Sequence[Next]
    started: Started | None  # None: nothing is drawn yet
    logits: torch.Tensor
    best: Best
    last: Started  # no other draws may have begun behind these
    sent_out: SentOut | None = None  # its hidden states
    tokens: Sequence[int] = field(default_factory=tuple)  # which it was over, once they are known

    def rows_for(self, body: Body, plan: Plan, draws: Draws) -> list[int] | None:
        """Which of its rows are those of `plan`; None where one of them is not there."""
        if body != self.body or len(draws) != len(plan.rows):  # logits of rows are asked for
            return None
        places = {id(part.row.table): idx for idx, part in enumerate(self.parts)}
        rows = [places.get(id(row.table), -1) for row in plan.rows]
        found = zip(rows, plan.rows, draws, strict=True)
        return rows if all(self._is_of(*one) for one in found) else None

    def draws_for(self, rows: Sequence[int], draws: Draws) -> list[CoupledDraws | None]:
        """One for each of its rows, of which these are asked for."""
        found: list[CoupledDraws | None] = [_NOBODY] * len(self.parts)
        for row, draw in zip(rows, draws, strict=True):
            found[row] = draw
        return found

    def _is_of(self, idx: int, row: PlanRow, draw: CoupledDraws | None) -> bool:
        if idx < 0 or draw is None:
            return False
        part = self.parts[idx]
        return (
            len(row) == 1
            and row.span.tree.is_chain
            and row.span.tokens[-1] == self.tokens[idx]
            and len(row.slots) == len(part.row.slots) + 1
            and int(row.slots[-1]) == part.slot
            and draw.params is part.draw.params
            and (self.started is None or not draw.changes_logits)
            and draw.noise is part.draw.noise
            and (not draw.params.temperature or draw.positions[0] == part.draw.positions[-1] + 1)
        )


def parts_after(plan: Plan, draws: Draws, rows: Sequence[int]) -> list[Next] | None:
    """Of those that go on; `rows`: where the pass under way has the plan's. None: the next pass is
    not known, or needs the host."""
    if plan.next_slots is None:
        return None
    parts = []
    for row, draw, drawn, slots in zip(plan.rows, draws, rows, plan.next_slots, strict=True):
        if draw is None:
            return None
        if len(row.span.wanted) != 1:
            return None
        if slots is not None:
            parts.append(Next(row, draw, drawn, int(slots[0])))
    return parts or None
