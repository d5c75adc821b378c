"""The largest numbers of a long row, found without sorting it."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from forerun.types import IntArray

_COLUMN_LEN: Final = 64


def largest(values: npt.NDArray[np.floating[Any]], count: int) -> IntArray:
    """Return the ids of the `count` largest values, best first; ties go to the lowest id."""
    if count <= 0:
        return np.empty(0, np.int64)
    ids = np.flatnonzero(values >= largest_bound(values, count))
    order = np.argsort(-values[ids], kind="stable")[:count]
    return ids[order]


def largest_bound(values: npt.NDArray[np.floating[Any]], count: int) -> float:
    """Return a bound that at least `count` values of a row reach, and usually not many more.

    The row is cut into columns. If the maxima of `count` columns reach the bound, so do at least
    `count` values.
    """
    num_columns = len(values) // _COLUMN_LEN
    if not 0 < count <= num_columns // 2:
        return -np.inf
    columns = values[: num_columns * _COLUMN_LEN].reshape(_COLUMN_LEN, num_columns)
    return float(np.partition(columns.max(axis=0), -count)[-count])
