"""Base of heads with decoder layers: their sizes, loading, a layer, and their cache."""

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
    """A head's weights on a kernel set, and the passes over them."""

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
        """Make all guesses of one request in one pass on `ChainKernels`; returns its picks
        [depth, 3], as `ChainKernels.new_picks` has them.

        `features` is called unless the kernels began the pass early. After the known tokens the
        plan has rows for at least all guesses but the last, and it wants `depth` rows from the last
        known token on."""

    @abstractmethod
    def prepare(self) -> None:
        """Load the arrays that `chain` needs, before the first request."""

    @cached_property
    def shape(self) -> AttentionShape:
        return AttentionShape(self.config.num_heads, self.config.num_kv_heads, self.config.head_dim)

    @cached_property
    def inv_freq(self) -> npt.NDArray[np.float64]:
        dim = self.config.head_dim
        return np.asarray(self.config.rope_theta ** (-np.arange(0, dim, 2) / dim))

    @cached_property
    def chain_kernels(self) -> ChainKernels | None:
        """The kernels, if they run `chain`. Cached: `isinstance` of a protocol is as slow as a
        pass."""
        return self.kernels if isinstance(self.kernels, ChainKernels) else None

    @property
    def row_bytes(self) -> int:
        return self.kernels.row_bytes(self.shape, self.num_layers)

    def new_cache(self, num_pages: int, page_size: int) -> KVCache:
        return KVCache(self.kernels, self.shape, self.num_layers, num_pages, page_size)


@dataclass(frozen=True)
class HeadLoader:
    """Loads weights from a head's folder onto a kernel set, by name."""

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
    """A decoder layer as in the target's family."""

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
        """Return the residual stream before the layer's last addition, and what is still to be
        added. `delta` is what the previous layer left to be added."""
        x, h = k.add_norm(x, delta, self.input_norm)
        q = k.rope_write(k.linear(h, self.qkv), batch, store, idx)
        x, h = k.add_norm(x, k.linear(k.attend(q, batch, store, idx), self.out), self.mlp_norm)
        return x, k.linear(k.silu_mul(k.linear(h, self.gate_up)), self.down)


def layer_shapes(config: HeadConfig, name: str, num_inputs: int = 1) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a layer's weights. The input of its q, k and v projections is
    `num_inputs` times the target's hidden size."""
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
    """Raise `InvalidWeights` unless these sizes make decoder layers; `more` are further sizes."""
    c = folder.config
    sizes = [c.intermediate_size, c.num_heads, c.num_kv_heads, c.head_dim, c.max_len, *more]
    if min(sizes) < 1 or c.num_heads % c.num_kv_heads or c.head_dim % 2:
        raise InvalidWeights(
            f"{folder.path}: its sizes {sizes} fit no head of kind {c.kind}; train again."
        )
