"""A check of packed weights' scales: one that is not finite would spoil every answer."""

from __future__ import annotations

from typing import Final

import numpy as np

from forerun.errors import InvalidWeights
from forerun.kernels.base import StoredTensor
from forerun.kernels.cpu.products.formats import PACKED

_EXPONENT: Final = 0x7C00  # all ones in an infinity or a NaN
_SLICE_BYTES: Final = 1 << 22


def check_scales(tensor: StoredTensor) -> None:
    """Raise if a scale of a packed tensor is infinite or not a number."""
    layout = PACKED[tensor.format]
    num_rows, row_bytes = tensor.data.shape
    step = max(1, _SLICE_BYTES // row_bytes)
    for lo in range(0, num_rows, step):
        blocks = tensor.data[lo : lo + step].reshape(-1, layout.block_bytes)
        for at in layout.scales_at:
            high_bytes = blocks[:, at + 1]
            if ((high_bytes & (_EXPONENT >> 8)) == _EXPONENT >> 8).any():
                first = int(np.argmax((high_bytes & 0x7C) == 0x7C))
                where = lo + first * layout.block_bytes // row_bytes
                raise InvalidWeights(
                    f"tensor {tensor.name!r} has a block without a finite scale in row {where}; "
                    "download the file again."
                )
