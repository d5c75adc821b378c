"""A pass whose kernels are launched one by one."""

from __future__ import annotations

from typing import Any

import torch

from forerun.kernels.base import Body
from forerun.kernels.cuda.asked_draws import Draws
from forerun.kernels.cuda.batch import CudaBatch
from forerun.kernels.cuda.drawing import Drawing
from forerun.kernels.cuda.heads.given import HandedOut
from forerun.kernels.cuda.store import KVStore
from forerun.kernels.cuda.values import Rows
from forerun.kernels.scores import Scores


def launched(
    body: Body, batch: CudaBatch, store: KVStore, drawing: Drawing, draws: Draws
) -> Scores:
    logits = logits_of(body, batch, store)
    batch.send_out()
    return drawing.finish(logits, drawing.best(logits), batch.num_wanted, draws)


def logits_of(body: Body, batch: CudaBatch, store: KVStore) -> torch.Tensor:
    batch.tapped.clear()
    rows: Any = body(batch, store)
    assert isinstance(rows, Rows), rows
    batch.handed_out = HandedOut.of(batch.tapped) if batch.tapped else None
    return rows.data
