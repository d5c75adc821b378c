"""Random models of every family's shape, in memory."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from forerun.models.config import ModelConfig, RopeScaling
from forerun.models.weights.checkpoint import Tensor


def tiny_config(**changes: Any) -> ModelConfig:
    options: dict[str, Any] = {
        "architecture": "llama",
        "vocab_size": 97,
        "hidden_size": 48,
        "intermediate_size": 80,
        "num_layers": 3,
        "num_heads": 6,
        "num_kv_heads": 2,
        "head_dim": 8,
        "max_len": 512,
    }
    return ModelConfig(**{**options, **changes})


LLAMA3 = RopeScaling("llama3", factor=8.0, original_max_len=32)

# One per switch of the family; odd sizes are none of the powers of two that kernels like.
FAMILIES: dict[str, ModelConfig] = {
    "llama2": tiny_config(num_kv_heads=6),
    "llama3.1": tiny_config(rope_theta=500000.0, rope_scaling=LLAMA3),
    "llama3.2": tiny_config(rope_scaling=LLAMA3, tie_embeddings=True, num_kv_heads=1),
    "linear-rope": tiny_config(rope_scaling=RopeScaling("linear", factor=4.0)),
    "smollm2": tiny_config(num_heads=9, num_kv_heads=3, tie_embeddings=True),
    "qwen2": tiny_config(architecture="qwen2", attention_bias=True, rms_norm_eps=1e-6),
    "qwen3": tiny_config(architecture="qwen3", qk_norm=True, head_dim=16),
    "mistral": tiny_config(architecture="mistral", sliding_window=5),
    "odd": tiny_config(
        vocab_size=101,
        hidden_size=37,
        intermediate_size=53,
        num_heads=5,
        num_kv_heads=1,
        head_dim=6,
    ),
}


@dataclass(frozen=True)
class TinyCheckpoint:
    """Weights drawn from `seed` and the tensor's name, so order and subset do not matter."""

    config: ModelConfig
    seed: int = 0

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        c = self.config
        shapes: dict[str, tuple[int, ...]] = {
            "model.embed_tokens.weight": (c.vocab_size, c.hidden_size),
            "model.norm.weight": (c.hidden_size,),
        }
        if not c.tie_embeddings:
            shapes["lm_head.weight"] = (c.vocab_size, c.hidden_size)
        for idx in range(c.num_layers):
            for name, shape in _layer_shapes(c).items():
                shapes[f"model.layers.{idx}.{name}.weight"] = shape
                if c.attention_bias and name[-6:] in ("q_proj", "k_proj", "v_proj"):
                    shapes[f"model.layers.{idx}.{name}.bias"] = shape[:1]
        return shapes

    def names(self) -> Iterator[str]:
        return iter(self._shapes())

    def has(self, name: str) -> bool:
        return name in self._shapes()

    def tensor(self, name: str) -> Tensor:
        array = self.float32(name)
        data = array.reshape(len(array), -1).view(np.uint8)
        return Tensor(name, array.shape, "F32", data)

    def float32(self, name: str) -> npt.NDArray[np.float32]:
        shape = self._shapes()[name]
        rng = np.random.default_rng([self.seed, zlib.crc32(name.encode())])
        if name.endswith("norm.weight"):
            return rng.uniform(0.5, 1.5, shape).astype(np.float32)
        return np.asarray(rng.standard_normal(shape) / np.sqrt(shape[-1]), dtype=np.float32)

    def metadata(self) -> dict[str, Any]:
        return {}


def _layer_shapes(c: ModelConfig) -> dict[str, tuple[int, ...]]:
    q_len, kv_len = c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim
    shapes: dict[str, tuple[int, ...]] = {
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
    if c.qk_norm:
        shapes |= {"self_attn.q_norm": (c.head_dim,), "self_attn.k_norm": (c.head_dim,)}
    return shapes
