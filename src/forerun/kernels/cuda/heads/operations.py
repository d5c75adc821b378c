"""The operations that trained heads need beyond a model's."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
import triton
from torch import Tensor

from forerun.kernels.cuda.batch import CudaBatch
from forerun.kernels.cuda.compiling import is_compiling
from forerun.kernels.cuda.heads.given import LateRows
from forerun.kernels.cuda.heads.kernels import gate_row, pick_token, place_rows
from forerun.kernels.cuda.launches import Launches
from forerun.kernels.cuda.values import Normed, Product, Rows
from forerun.types import FloatArray, IntArray

F32 = npt.NDArray[np.float32]

_WIDE: Final = 16384  # logits that `pick_token` loads together
_BLOCK: Final = 2048  # the same with noise, which takes more registers


class HeadOperations:
    """The part of `CudaKernels` that runs trained heads."""

    device: torch.device
    _launches: Launches

    def given(self, batch: CudaBatch, idx: int) -> Rows:
        given = batch.inputs().given
        assert given is not None, "nothing was given"
        return Rows(given.rows[idx])

    def concat(self, parts: Sequence[Rows | Normed | Product]) -> Rows:
        """Concatenate along columns, in float32; norms are computed on the way."""
        found = [self.computed(part) for part in parts]
        widths = [_data(part).shape[1] for part in found]
        out = torch.empty((found[0].num_rows, sum(widths)), device=self.device)
        first = 0
        for part, width in zip(found, widths, strict=True):
            num_squares = part.squares.shape[1] if isinstance(part, Normed) else 0
            if len(out):
                place_rows[(len(out),)](
                    _data(part), part.squares if isinstance(part, Normed) else None, out, first,
                    out.shape[1], part.eps if isinstance(part, Normed) else 0.0,
                    width, triton.next_power_of_2(width), num_squares,
                    triton.next_power_of_2(max(1, num_squares)),
                )  # fmt: skip
            first += width
        return Rows(out)

    def tap(self, x: Rows | Normed | Product, batch: CudaBatch) -> None:
        batch.tapped.append(self.concat([x]).data)

    def taps(self, batch: CudaBatch) -> Sequence[F32]:
        return () if batch.sent_out is None else LateRows(batch.sent_out)

    def load_array(self, array: IntArray | FloatArray) -> Tensor:
        kind = torch.int32 if np.issubdtype(array.dtype, np.integer) else torch.float32
        return torch.tensor(array, dtype=kind, device=self.device)

    def num_known(self, batch: CudaBatch) -> int:
        return batch.num_known

    def part(self, batch: CudaBatch, first: int, last: int) -> CudaBatch:
        """Return a part of a chain's batch: its known tokens, or one token that was guessed.

        Which known token is wanted is read on the device; of a guess, it is the only one.
        """
        whole, part = batch.inputs(), copy(batch)
        part.placed = whole.part(first, last, self._first if first else whole.wanted[:1])
        return part

    def new_picks(self, batch: CudaBatch, num: int) -> Rows:
        del batch
        # Where kernels are only compiled, picks are read that no kernel has written.
        make = torch.zeros if is_compiling() else torch.empty
        return Rows(make((num, 3), device=self.device))

    def pick(
        self,
        logits: Rows | Product,
        ids: Tensor,
        batch: CudaBatch,
        picks: Rows,
        place: int,
        *,
        row: int = 0,
        delta: Product | None = None,
        token: int | None = None,
    ) -> None:
        inputs = batch.inputs()
        assert inputs.given is not None, "nothing was given"
        noise = inputs.given.noise
        added = None if delta is None else _data(self.computed(delta))
        pick_token[(1,)](
            _data(self.computed(logits)), added, ids, noise, noise.view(torch.float64), picks.data,
            inputs.tokens, row, place, -1 if token is None else token, len(ids),
            min(_WIDE, triton.next_power_of_2(len(ids))), _BLOCK, delta is not None, num_warps=16,
        )  # fmt: skip

    def gated_row(
        self, table: Tensor, gates: Rows | Product, row: int, picks: Rows, place: int
    ) -> Rows:
        width = table.shape[1]
        step = torch.empty((1, width), device=self.device)
        gate_row[(1,)](
            table, _data(self.computed(gates)), picks.data, step, row, place, width,
            triton.next_power_of_2(width),
        )  # fmt: skip
        return Rows(step)

    def finish(self, x: Rows) -> Any:
        """Return rows on the device, as `logits` does."""
        return x

    def computed(self, x: Rows | Normed | Product) -> Rows | Normed:
        if not isinstance(x, Product):
            return x
        assert x.chosen is None, "rows are chosen before a norm alone"
        return Rows(self._launches.plain(x.x, x.matrix))

    @cached_property
    def _first(self) -> Tensor:
        """Index of the only row; created when a pass first runs, so before any recording."""
        return torch.zeros(1, dtype=torch.int32, device=self.device)


def _data(x: Rows | Normed) -> Tensor:
    if isinstance(x, Normed):
        return x.scaled
    assert x.chosen is None, "rows are chosen before a norm alone"
    return x.data
