"""Repacking: weights in another format than the file's."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from forerun.errors import InvalidWeights
from forerun.kernels.base import StoredTensor
from forerun.kernels.cpu.products.formats import PACKED
from forerun.kernels.cpu.weights.quantize import quantize_rows

Bytes = npt.NDArray[np.uint8]
F32 = npt.NDArray[np.float32]

_SLICE_LEN: Final = 1 << 18  # weights that are expanded at a time
# The largest weights for which the scale of a block, a float16, is finite.
_LARGEST: Final = {"Q8_0": 127 * 65504.0, "Q4_0": 8 * 65504.0}


def repacked(tensor: StoredTensor, target: str) -> Bytes:
    """Return the rows in the format `target`, made a few at a time: the tensor is never expanded
    as a whole."""
    num_out, num_in = tensor.shape
    layout = PACKED[target]
    out = np.empty((num_out, num_in // layout.block_len * layout.block_bytes), np.uint8)
    step = max(1, _SLICE_LEN // num_in)
    for first in range(0, num_out, step):
        rows = _floats(tensor, first, min(first + step, num_out), target)
        out[first : first + len(rows)] = quantize_rows(rows, target)
    return out


def _floats(tensor: StoredTensor, first: int, last: int, target: str) -> F32:
    with np.errstate(invalid="ignore", over="ignore"):  # checked below
        rows = tensor.floats(first, last)
        is_sound = np.abs(rows).max(axis=1) <= _LARGEST[target]  # False for NaN
    if not is_sound.all():
        where = first + int(np.argmin(is_sound))
        raise InvalidWeights(
            f"tensor {tensor.name!r} has a weight in row {where} that is infinite, no number, or "
            f"too large for {target}; download the file again."
        )
    return rows
