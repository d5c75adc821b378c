"""A block whose scale is no number spoils every answer: better said when the file is opened."""

from __future__ import annotations

from typing import Final

import numpy as np

from forerun.errors import InvalidWeights
from forerun.kernels.base import StoredTensor
from forerun.kernels.cpu.products.formats import DECODERS

# Where a block keeps its float16 scales.
_SCALES_AT: Final = {
    "Q8_0": (0,),
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
}
_EXPONENT: Final = 0x7C00  # all ones in an infinity or a NaN
_SLICE_BYTES: Final = 1 << 22


def check_scales(tensor: StoredTensor) -> None:
    """Raise if a scale of a packed tensor is infinite or not a number."""
    block_bytes = DECODERS[tensor.format].block_bytes
    num_rows, row_bytes = tensor.data.shape
    step = max(1, _SLICE_BYTES // row_bytes)
    for lo in range(0, num_rows, step):
        blocks = tensor.data[lo : lo + step].reshape(-1, block_bytes)
        for at in _SCALES_AT[tensor.format]:
            high_bytes = blocks[:, at + 1]
            if ((high_bytes & (_EXPONENT >> 8)) == _EXPONENT >> 8).any():
                where = lo + int(np.argmax((high_bytes & 0x7C) == 0x7C)) * block_bytes // row_bytes
                raise InvalidWeights(
                    f"tensor {tensor.name!r} has a block without a finite scale in row {where}; "
                    "download the file again."
                )
