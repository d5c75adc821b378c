"""A pass that the engine asks for."""

from __future__ import annotations

from dataclasses import dataclass

from forerun.kernels.base import Body
from forerun.kernels.cuda.asked_draws import Draws
from forerun.kernels.cuda.batch import CudaBatch
from forerun.kernels.cuda.store import KVStore
from forerun.kernels.plan import PlanRow


@dataclass
class Asked:
    body: Body
    batch: CudaBatch
    store: KVStore
    draws: Draws

    @property
    def row(self) -> PlanRow | None:
        """The plan's row, if the pass is over one request."""
        rows = self.batch.plan.rows
        return rows[0] if len(rows) == 1 else None
