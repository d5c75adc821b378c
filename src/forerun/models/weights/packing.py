"""Pack float weights into blocks, for kernels that read fewer bytes that way."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from forerun.models.weights.checkpoint import Tensor

_BLOCK_LEN: Final = 32
_FLOATS: Final = ("F32", "F16", "BF16")


def packed(tensor: Tensor) -> Tensor:
    """Return a matrix of floats as Q8_0, 8 bits a weight; other tensors, and rows that do not
    divide into blocks, stay as they are."""
    if tensor.format not in _FLOATS or len(tensor.shape) < 2 or tensor.shape[1] % _BLOCK_LEN:
        return tensor
    from gguf.constants import GGMLQuantizationType
    from gguf.quants import quantize

    rows = tensor.floats(0, tensor.shape[0])
    return replace(tensor, format="Q8_0", data=quantize(rows, GGMLQuantizationType.Q8_0))
