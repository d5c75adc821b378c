"""Random packed weights of every format, and a model of them."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from forerun.models.weights.checkpoint import Tensor
from forerun.models.weights.dequantize import dequantize
from forerun.models.weights.formats import FORMATS
from tests.models_llama.tiny import TinyCheckpoint, tiny_config

Bytes = npt.NDArray[np.uint8]
F32 = npt.NDArray[np.float32]

# Offsets of the float16 scales in a block: random bytes would make them infinite.
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


def packed(
    weight_format: str,
    num_out: int,
    num_in: int,
    seed: int | Sequence[int] = 0,
    scale: float = 0.01,
) -> Bytes:
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
        scales = rng.normal(0, scale, shape[:2]).astype(np.float16)
        blocks[:, :, at : at + 2] = scales[..., None].view(np.uint8)
    return blocks.reshape(num_out, -1)


@dataclass(frozen=True)
class PackedSource:
    """A checkpoint with one tensor, "w"."""

    weight_format: str
    data: Bytes

    def tensor(self, name: str) -> Tensor:
        layout = FORMATS[self.weight_format]
        num_in = self.data.shape[1] // layout.block_bytes * layout.block_len
        return Tensor(name, (len(self.data), num_in), self.weight_format, self.data)

    def float32(self, name: str) -> F32:
        assert name == "w"
        return dequantize(self.data, self.weight_format)


# Wide enough for K blocks; formats that are stacked in one matrix differ, as in real files.
MIXED_CONFIG = tiny_config(
    hidden_size=256, intermediate_size=256, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=64
)
MIXED_FORMATS = {
    "embed_tokens": "Q6_K",
    "q_proj": "Q4_K",
    "k_proj": "Q4_K",
    "v_proj": "Q6_K",
    "o_proj": "Q8_0",
    "gate_proj": "F16",
    "up_proj": "Q4_K",
    "down_proj": "Q6_K",
    "lm_head": "Q8_0",
}


@dataclass(frozen=True)
class MixedCheckpoint(TinyCheckpoint):
    """A tiny model with packed matrices; `formats` is by the last part of a tensor's name."""

    formats: Mapping[str, str] = field(default_factory=MIXED_FORMATS.copy)

    def tensor(self, name: str) -> Tensor:
        shape, weight_format = self._shapes()[name], self.formats.get(name.split(".")[-2])
        if weight_format is None:
            array = super().float32(name)
            return Tensor(name, shape, "F32", array.reshape(len(array), -1).view(np.uint8))
        if weight_format == "F16":
            data = super().float32(name).astype(np.float16).view(np.uint8)
        else:
            data = self._packed(weight_format, name, *shape)
        return Tensor(name, shape, weight_format, data)

    def float32(self, name: str) -> F32:
        tensor = self.tensor(name)
        return dequantize(tensor.data, tensor.format).reshape(tensor.shape)

    def _packed(self, weight_format: str, name: str, num_out: int, num_in: int) -> Bytes:
        """Pack random weights with a scale that gives rows a norm of about 1."""
        seed = (self.seed, zlib.crc32(name.encode()))
        wide = dequantize(packed(weight_format, num_out, num_in, seed), weight_format)
        scale = 0.01 / float(wide.std()) / num_in**0.5
        return packed(weight_format, num_out, num_in, seed, scale)
