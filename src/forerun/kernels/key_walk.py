"""Each token's keys in logical order, as edits of one buffer that is reused from token to token."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from forerun.kernels.plan import PlanRow
from forerun.types import IntArray


@dataclass(frozen=True)
class Query:
    """How the buffer with the previous token's keys becomes that of this token.

    Rows 0 … `keep`-1 stay; the rows after them are read from the slots `fill`.
    """

    keep: int
    fill: IntArray

    @property
    def num_keys(self) -> int:
        return self.keep + len(self.fill)


def queries_of(row: PlanRow) -> Iterator[Query]:
    """Yield a query for each token that runs. A chain fills one row per token; a tree refills from
    the fork on."""
    before: IntArray | None = None
    for idx in range(row.num_written, len(row.span)):
        path = row.ancestors(idx)
        if before is None:
            yield Query(0, np.concatenate((row.context, path)))
        else:
            num_shared = _shared_len(before, path)
            yield Query(row.span.start + num_shared, path[num_shared:])
        before = path


def _shared_len(left: IntArray, right: IntArray) -> int:
    shortest = min(len(left), len(right))
    differs = np.flatnonzero(left[:shortest] != right[:shortest])
    return int(differs[0]) if len(differs) else shortest
