"""Random packed weights of every format."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from forerun.models.checkpoint import Tensor
from forerun.models.dequantize import dequantize
from forerun.models.formats import FORMATS

Bytes = npt.NDArray[np.uint8]
F32 = npt.NDArray[np.float32]

# Where a block keeps its float16 scales, of which random bytes would make infinities.
SCALES_AT = {
    "Q8_0": (0,),
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
}


def packed(weight_format: str, num_out: int, num_in: int, seed: int = 0) -> Bytes:
    """uint8 [num_out, bytes per row]: every quant equally likely, scales of either sign."""
    rng = np.random.default_rng(seed)
    layout = FORMATS[weight_format]
    if layout.block_len == 1:
        floats = rng.standard_normal((num_out, num_in)).astype(np.float32)
        if weight_format == "F16":
            return floats.astype(np.float16).view(np.uint8)
        raw = floats.view(np.uint8).reshape(num_out, num_in, 4)
        raw = raw if weight_format == "F32" else raw[:, :, 2:]
        return np.ascontiguousarray(raw).reshape(num_out, -1)
    shape = (num_out, num_in // layout.block_len, layout.block_bytes)
    blocks = rng.integers(0, 256, shape, dtype=np.uint8)
    for at in SCALES_AT[weight_format]:
        scales = rng.normal(0, 0.01, shape[:2]).astype(np.float16)
        blocks[:, :, at : at + 2] = scales[..., None].view(np.uint8)
    return blocks.reshape(num_out, -1)


@dataclass(frozen=True)
class PackedSource:
    """One tensor, "w"."""

    weight_format: str
    data: Bytes

    def tensor(self, name: str) -> Tensor:
        layout = FORMATS[self.weight_format]
        num_in = self.data.shape[1] // layout.block_bytes * layout.block_len
        return Tensor(name, (len(self.data), num_in), self.weight_format, self.data)

    def float32(self, name: str) -> F32:
        assert name == "w"
        return dequantize(self.data, self.weight_format)
