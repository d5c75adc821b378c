"""Models of known shapes with random weights: speed asks for no more."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from forerun.models.config import ModelConfig
from forerun.models.weights.checkpoint import Tensor

_LLAMA_3: Final = ModelConfig(
    architecture="llama",
    vocab_size=128256,
    hidden_size=2048,
    intermediate_size=8192,
    num_layers=16,
    num_heads=32,
    num_kv_heads=8,
    head_dim=64,
    max_len=131072,
    rope_theta=500000.0,
    tie_embeddings=True,
)
SHAPES: Final = {
    "1b": _LLAMA_3,
    "3b": replace(
        _LLAMA_3, hidden_size=3072, num_layers=28, num_heads=24, head_dim=128
    ),
    "135m": ModelConfig(
        architecture="llama",
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_layers=30,
        num_heads=9,
        num_kv_heads=3,
        head_dim=64,
        max_len=8192,
        rope_theta=100000.0,
        tie_embeddings=True,
    ),
}  # fmt: skip
_POOL_LEN: Final = 1 << 22


@dataclass(frozen=True)
class SyntheticCheckpoint:
    """Weights in bfloat16, cut out of one pool of normal numbers at a place of each tensor's own.

    Drawing billions of numbers would take longer than the measurement.
    """

    config: ModelConfig
    seed: int = 0

    @cached_property
    def _pool(self) -> npt.NDArray[np.uint16]:
        rng = np.random.default_rng(self.seed)
        floats = rng.standard_normal(_POOL_LEN, np.float32) / np.sqrt(self.config.hidden_size)
        high: npt.NDArray[np.uint16] = (floats.astype(np.float32).view(np.uint32) >> 16).astype(
            np.uint16
        )
        return high

    @cached_property
    def _shapes(self) -> dict[str, tuple[int, ...]]:
        c = self.config
        shapes: dict[str, tuple[int, ...]] = {
            "model.embed_tokens.weight": (c.vocab_size, c.hidden_size),
            "model.norm.weight": (c.hidden_size,),
        }
        if not c.tie_embeddings:
            shapes["lm_head.weight"] = (c.vocab_size, c.hidden_size)
        q_len, kv_len = c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim
        block = {
            "input_layernorm": (c.hidden_size,),
            "self_attn.q_proj": (q_len, c.hidden_size),
            "self_attn.k_proj": (kv_len, c.hidden_size),
            "self_attn.v_proj": (kv_len, c.hidden_size),
            "self_attn.o_proj": (c.hidden_size, q_len),
            "post_attention_layernorm": (c.hidden_size,),
            "mlp.gate_proj": (c.intermediate_size, c.hidden_size),
            "mlp.up_proj": (c.intermediate_size, c.hidden_size),
            "mlp.down_proj": (c.hidden_size, c.intermediate_size),
        }
        for layer in range(c.num_layers):
            shapes |= {f"model.layers.{layer}.{n}.weight": shape for n, shape in block.items()}
        return shapes

    @property
    def read_bytes(self) -> int:
        """What a plain pass reads of weights: every matrix once, and of the embedding one row."""
        shapes = self._shapes.items()
        skipped = () if self.config.tie_embeddings else ("model.embed_tokens.weight",)
        return sum(2 * int(np.prod(s)) for name, s in shapes if len(s) > 1 and name not in skipped)

    def names(self) -> Iterator[str]:
        return iter(self._shapes)

    def has(self, name: str) -> bool:
        return name in self._shapes

    def tensor(self, name: str) -> Tensor:
        shape = self._shapes[name]
        if len(shape) == 1:
            return Tensor(name, shape, "F32", np.ones((1, shape[0]), np.float32).view(np.uint8))
        first = hash_of(name) % _POOL_LEN
        data = np.resize(np.roll(self._pool, first), shape)
        return Tensor(name, shape, "BF16", data.view(np.uint8))

    def float32(self, name: str) -> npt.NDArray[np.float32]:
        tensor = self.tensor(name)
        return tensor.floats(0, len(tensor.data)).reshape(tensor.shape)

    def metadata(self) -> dict[str, Any]:
        return {}


def hash_of(name: str) -> int:
    """The same in every process."""
    return zlib.crc32(name.encode())
