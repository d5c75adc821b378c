"""What heads with decoder layers share: sizes, loading, a layer, and their cache."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from forerun.cache import KVCache
from forerun.drafters.heads.config import HeadConfig
from forerun.drafters.heads.folder import HeadFolder
from forerun.errors import InvalidWeights
from forerun.kernels import AttentionShape, ChainKernels, ChainNoise, Norm, Plan, TappedKernels
from forerun.kernels.base import Array, Batch, Store, Weight
from forerun.types import FloatArray, IntArray

Features: TypeAlias = Callable[[], FloatArray]  # [n, layers · E]


@dataclass(frozen=True, eq=False)
class CachedHead(ABC):
    """Weights on a kernel set, and passes over them."""

    config: HeadConfig
    kernels: TappedKernels
    tokens: IntArray  # [draft V]: the target's id of each draft id
    embedding: Weight

    @property
    def num_layers(self) -> int:
        return 1

    @abstractmethod
    def chain(
        self, plan: Plan, cache: KVCache, features: Features, depth: int, noise: ChainNoise
    ) -> npt.NDArray[np.float32]:
        """All guesses of one request in one pass behind the rows of `features`, on `ChainKernels`:
        `new_picks`. They are asked for where the pass was not begun early. Behind the tokens that
        are known the plan has room for all guesses but the last, if not for more, and wants
        `depth` rows from the last known one on."""

    @abstractmethod
    def prepare(self) -> None:
        """What a chain takes along is loaded now."""

    @cached_property
    def shape(self) -> AttentionShape:
        return AttentionShape(self.config.num_heads, self.config.num_kv_heads, self.config.head_dim)

    @cached_property
    def inv_freq(self) -> npt.NDArray[np.float64]:
        dim = self.config.head_dim
        return np.asarray(self.config.rope_theta ** (-np.arange(0, dim, 2) / dim))

    @cached_property
    def chain_kernels(self) -> ChainKernels | None:
        """The same kernels, if `chain` runs there; to ask a protocol takes as long as a pass."""
        return self.kernels if isinstance(self.kernels, ChainKernels) else None

    @property
    def row_bytes(self) -> int:
        return self.kernels.row_bytes(self.shape, self.num_layers)

    def new_cache(self, num_pages: int, page_size: int) -> KVCache:
        return KVCache(self.kernels, self.shape, self.num_layers, num_pages, page_size)


@dataclass(frozen=True)
class HeadLoader:
    """From names in a folder to weights on a kernel set."""

    folder: HeadFolder
    kernels: TappedKernels

    def matrix(self, *names: str) -> Weight:
        return self.kernels.load_matrix(self.folder, [f"{name}.weight" for name in names])

    def norm(self, name: str) -> Norm:
        weight = self.kernels.load_vector(self.folder, f"{name}.weight")
        return Norm(weight, self.folder.config.rms_norm_eps)

    def layer(self, name: str) -> DecoderLayer:
        return DecoderLayer(
            self.norm(f"{name}.input_layernorm"),
            self.matrix(*(f"{name}.self_attn.{part}_proj" for part in "qkv")),
            self.matrix(f"{name}.self_attn.o_proj"),
            self.norm(f"{name}.post_attention_layernorm"),
            self.matrix(f"{name}.mlp.gate_proj", f"{name}.mlp.up_proj"),
            self.matrix(f"{name}.mlp.down_proj"),
        )


@dataclass(frozen=True)
class DecoderLayer:
    """As the target's family has it."""

    input_norm: Norm
    qkv: Weight
    out: Weight
    mlp_norm: Norm
    gate_up: Weight
    down: Weight

    def run(
        self,
        k: TappedKernels,
        x: Array,
        delta: Array | None,
        batch: Batch,
        store: Store,
        idx: int = 0,
    ) -> tuple[Array, Array]:
        """The residual stream before the layer's last addition, and what is still to be added;
        `delta` is that of the layer before."""
        x, h = k.add_norm(x, delta, self.input_norm)
        q = k.rope_write(k.linear(h, self.qkv), batch, store, idx)
        x, h = k.add_norm(x, k.linear(k.attend(q, batch, store, idx), self.out), self.mlp_norm)
        return x, k.linear(k.silu_mul(k.linear(h, self.gate_up)), self.down)


def layer_shapes(config: HeadConfig, name: str, num_inputs: int = 1) -> dict[str, tuple[int, ...]]:
    """Of a layer's weights; its projections take in so many times the target's hidden size."""
    c, size = config, config.target_hidden_size
    q_len, kv_len = c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim
    attn, mlp = f"{name}.self_attn", f"{name}.mlp"
    return {
        f"{name}.input_layernorm.weight": (size,),
        f"{attn}.q_proj.weight": (q_len, num_inputs * size),
        f"{attn}.k_proj.weight": (kv_len, num_inputs * size),
        f"{attn}.v_proj.weight": (kv_len, num_inputs * size),
        f"{attn}.o_proj.weight": (size, q_len),
        f"{name}.post_attention_layernorm.weight": (size,),
        f"{mlp}.gate_proj.weight": (c.intermediate_size, size),
        f"{mlp}.up_proj.weight": (c.intermediate_size, size),
        f"{mlp}.down_proj.weight": (size, c.intermediate_size),
    }


def check_sizes(folder: HeadFolder, *more: int) -> None:
    """Whether there can be such layers; `more` are further sizes of the kind."""
    c = folder.config
    sizes = [c.intermediate_size, c.num_heads, c.num_kv_heads, c.head_dim, c.max_len, *more]
    if min(sizes) < 1 or c.num_heads % c.num_kv_heads or c.head_dim % 2:
        raise InvalidWeights(
            f"{folder.path}: its sizes {sizes} fit no head of kind {c.kind}; train again."
        )
