"""A plain pass that was begun before the host knew its tokens (ADR 019)."""

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
    """One request's next token, which the pass under way draws."""

    row: PlanRow  # of the pass under way
    draw: CoupledDraws
    drawn: int  # the row of that pass that draws it
    slot: int  # where its key and value are written


@dataclass
class Ahead:
    """A pass that was begun early, and whether it is the one that is asked for.

    Rows of requests that have ended meanwhile are ignored. If anything else differs, the pass is
    discarded; its keys and values are overwritten before they are read.

    The pass needs only tokens, but masks and penalties need the text on the host. With these,
    tokens are drawn when the pass is asked for, while the device works on it.
    """

    body: Body
    parts: Sequence[Next]
    started: Started | None  # None: drawn when the pass is asked for
    logits: torch.Tensor
    best: Best
    last: Started  # the pass is valid only while these are the latest draws
    sent_out: SentOut | None = None  # its hidden states
    tokens: Sequence[int] = field(default_factory=tuple)  # that it ran over, once they are known

    def rows_for(self, body: Body, plan: Plan, draws: Draws) -> list[int] | None:
        """Return where this pass has the rows of `plan`, or None if one is missing or differs."""
        if body != self.body or len(draws) != len(plan.rows):  # without draws, logits are wanted
            return None
        places = {id(part.row.table): idx for idx, part in enumerate(self.parts)}
        rows = [places.get(id(row.table), -1) for row in plan.rows]
        found = zip(rows, plan.rows, draws, strict=True)
        return rows if all(self._is_of(*one) for one in found) else None

    def draws_for(self, rows: Sequence[int], draws: Draws) -> list[CoupledDraws | None]:
        """Return a draw for each row of this pass: `draws` at `rows`, placeholders elsewhere."""
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
    """Return the next token of each request that goes on, or None if the next pass needs the host.

    `rows`: where the pass under way has the rows of `plan`.
    """
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
