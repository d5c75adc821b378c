"""The Llama family: Llama 2 and 3, SmolLM2, Qwen2, Qwen3, Mistral.

They differ by switches of `ModelConfig`: biases on q, k, v (Qwen2), norms of q and k (Qwen3), a
sliding window (Mistral), stretched rotary frequencies (Llama 3.1), a head of its own or one tied to
the embedding.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

import numpy as np
import numpy.typing as npt

from forerun.cache import KVCache
from forerun.errors import InvalidOption
from forerun.interrupts import Uninterrupted, safe_point
from forerun.kernels import AttentionShape, Kernels, Norm, Plan, Scores, TappedKernels
from forerun.kernels.base import Array, Batch, Store, Weight
from forerun.models.config import ModelConfig
from forerun.models.rope import rope_frequencies
from forerun.models.weights.checkpoint import Checkpoint
from forerun.sampling import CoupledDraws

EMBEDDING: Final = "model.embed_tokens.weight"
HEAD: Final = "lm_head.weight"


@dataclass(frozen=True)
class Layer:
    input_norm: Norm
    qkv: Weight  # [q_len + 2·kv_len, E]
    q_norm: Norm | None
    k_norm: Norm | None
    out: Weight  # [E, q_len]
    mlp_norm: Norm
    gate_up: Weight  # [2F, E]
    down: Weight  # [E, F]


@dataclass
class Taps:
    """Hidden states that a pass hands out: tap n is the residual stream after the first n layers.

    Tap 0 is the embedding; the last one is the input of the last norm. The numbers are those of
    Hugging Face's `hidden_states`, up to that norm.
    """

    layers: tuple[int, ...]  # ascending
    found: Sequence[npt.NDArray[np.float32]] = ()  # [T, E] each; a kernel set may read them late
    num_tokens: int = 0  # T; `found` may have more rows

    @property
    def rows(self) -> dict[int, npt.NDArray[np.float32]]:
        """[T, E] by layer."""
        found = [rows[: self.num_tokens] for rows in self.found]
        return dict(zip(self.layers, found, strict=True))


class TapRows(Mapping[int, npt.NDArray[np.float32]]):
    """Some rows of a pass's hidden states, by layer, read only when they are indexed.

    They may be read until the next such rows come. A drafter whose next guesses are made already
    never reads them."""

    def __init__(
        self, taps: Taps, some: slice | list[int], num_rows: int, layers: Sequence[int] = ()
    ) -> None:
        self._taps, self._some = taps, some
        self.num_rows, self._layers = num_rows, layers or taps.layers

    def of(self, layers: Sequence[int]) -> TapRows:
        """Return the same rows of only these layers, in this order."""
        return TapRows(self._taps, self._some, self.num_rows, layers)

    def __getitem__(self, layer: int) -> npt.NDArray[np.float32]:
        return self._taps.found[self._taps.layers.index(layer)][self._some]

    def __iter__(self) -> Iterator[int]:
        return iter(self._layers)

    def __len__(self) -> int:
        return len(self._layers)


class LlamaModel:
    """A model's weights on a kernel set, and the pass over them."""

    def __init__(
        self,
        config: ModelConfig,
        kernels: Kernels,
        embedding: Weight,
        layers: tuple[Layer, ...],
        norm: Norm,
        head: Weight,
        inv_freq: npt.NDArray[np.float64],
    ) -> None:
        self.config = config
        self.kernels = kernels
        self.shape = attention_shape(config)
        self._embedding = embedding
        self._layers = layers
        self._norm = norm
        self._head = head
        self._inv_freq = inv_freq

    @classmethod
    def load(
        cls, checkpoint: Checkpoint, kernels: Kernels, num_layers: int | None = None
    ) -> LlamaModel:
        """Load a checkpoint; with `num_layers` only its first layers, under its norm and head."""
        config = checkpoint.config
        num_layers = config.num_layers if num_layers is None else num_layers
        _check_num_layers(num_layers, config)
        loader = _Loader(checkpoint, kernels)
        with kernels.loading(len(tuple(checkpoint.names()))):
            embedding = loader.matrix(EMBEDDING)
            return cls(
                config,
                kernels,
                embedding,
                tuple(loader.layer(idx) for idx in range(num_layers)),
                loader.norm("model.norm"),
                embedding if config.tie_embeddings else loader.matrix(HEAD),
                rope_frequencies(checkpoint),
            )

    def first_layers(self, num_layers: int) -> LlamaModel:
        """Return a model of the first layers, under the same norm and head; weights are shared."""
        _check_num_layers(num_layers, self.config)
        twin = copy.copy(self)
        twin._layers = self._layers[:num_layers]
        return twin

    @property
    def num_layers(self) -> int:
        return len(self._layers)

    @property
    def row_bytes(self) -> int:
        """Bytes that one token takes in a cache of this model."""
        return self.kernels.row_bytes(self.shape, self.num_layers)

    def new_cache(self, num_pages: int, page_size: int) -> KVCache:
        return KVCache(self.kernels, self.shape, self.num_layers, num_pages, page_size)

    @property
    def embedding(self) -> Weight:
        return self._embedding

    @property
    def norm(self) -> Norm:
        """The last one, before the head."""
        return self._norm

    @property
    def head(self) -> Weight:
        return self._head

    def check_taps(self, layers: Sequence[int], asker: str) -> None:
        """Raise `InvalidOption` if the kernels have no taps, or the model not all these layers."""
        if not isinstance(self.kernels, TappedKernels):
            raise InvalidOption(
                f"{asker} needs hidden states of the target, which the {self.kernels.name} kernels "
                "do not hand out yet; take another method, or another device."
            )
        if not all(0 <= layer <= self.num_layers for layer in layers):
            raise InvalidOption(
                f"{asker} asks for hidden states after layers {list(layers)}; "
                f"the target has {self.num_layers} layers: take one that was made for it."
            )

    def forward(
        self,
        plan: Plan,
        cache: KVCache,
        taps: Taps | None = None,
        added: npt.NDArray[np.float32] | None = None,
    ) -> npt.NDArray[np.float32]:
        """Run one pass over all spans; returns the logits [R, V] of the wanted tokens, in order.

        `added` [T, E] is added to the embeddings; such a pass taps nothing."""
        body = self._pass if taps is None else _TappedPass(self, taps.layers)
        with Uninterrupted():
            if added is not None:
                kernels = cast(TappedKernels, self.kernels)
                batch = kernels.begin(plan, self.shape, self._inv_freq, [added])
                return kernels.run(self._added_pass, batch, cache.store)
            batch = self.kernels.begin(plan, self.shape, self._inv_freq)
            logits = self.kernels.run(body, batch, cache.store)
            self._hand_out(batch, taps, len(plan))
            return logits

    def draw(
        self,
        plan: Plan,
        cache: KVCache,
        draws: Sequence[CoupledDraws | None],
        taps: Taps | None = None,
    ) -> Scores:
        """Run a pass and draw from its logits, as `Kernels.draw`; `draws` has one for each span."""
        body = self._pass if taps is None else _TappedPass(self, taps.layers)
        with Uninterrupted():
            batch = self.kernels.begin(plan, self.shape, self._inv_freq)
            scores = self.kernels.draw(body, batch, cache.store, draws)
            self._hand_out(batch, taps, len(plan))
            return scores

    def _hand_out(self, batch: Batch, taps: Taps | None, num_tokens: int) -> None:
        if taps is not None:
            kernels = cast(TappedKernels, self.kernels)  # the body has checked; isinstance is slow
            taps.found, taps.num_tokens = kernels.taps(batch), num_tokens

    def _added_pass(self, batch: Batch, store: Store) -> npt.NDArray[np.float32]:
        return self._pass(batch, store, added=cast(TappedKernels, self.kernels).given(batch, 0))

    def _pass(
        self,
        batch: Batch,
        store: Store,
        tapped: tuple[int, ...] = (),
        added: Array | None = None,
    ) -> npt.NDArray[np.float32]:
        k = self.kernels
        x, delta = k.embed(self._embedding, batch), added  # [T, E]
        for idx, layer in enumerate(self._layers):
            x, h = k.add_norm(x, delta, layer.input_norm)
            if idx in tapped:
                assert isinstance(k, TappedKernels), k.name
                k.tap(x, batch)
            x, delta = self._layer(layer, idx, x, h, batch, store)
        if self.num_layers in tapped:
            return self._tapped_end(x, delta, batch)
        x, h = k.add_norm(k.select(x, batch), k.select(delta, batch), self._norm)  # [R, E]
        return k.logits(h, self._head)

    def _tapped_end(self, x: Array, delta: Array, batch: Batch) -> npt.NDArray[np.float32]:
        """Run the last norm over all rows, not only the wanted ones, to tap its input."""
        k = self.kernels
        assert isinstance(k, TappedKernels), k.name
        x, h = k.add_norm(x, delta, self._norm)
        k.tap(x, batch)
        return k.logits(k.select(h, batch), self._head)

    def _layer(
        self, layer: Layer, idx: int, x: Array, h: Array, batch: Batch, store: Store
    ) -> tuple[Array, Array]:
        """Run a layer on the residual stream `x` and its norm `h`; returns the stream before the
        layer's last addition, and what is still to be added."""
        k = self.kernels
        q = k.rope_write(k.linear(h, layer.qkv), batch, store, idx, layer.q_norm, layer.k_norm)
        x, h = k.add_norm(x, k.linear(k.attend(q, batch, store, idx), layer.out), layer.mlp_norm)
        return x, k.linear(k.silu_mul(k.linear(h, layer.gate_up)), layer.down)


@dataclass(frozen=True)
class _TappedPass:
    """A pass body; equal to another one of the same model and taps, so that it can be replayed."""

    model: LlamaModel
    layers: tuple[int, ...]

    def __call__(self, batch: Batch, store: Store) -> npt.NDArray[np.float32]:
        return self.model._pass(batch, store, self.layers)


def _check_num_layers(num_layers: int, config: ModelConfig) -> None:
    if not 1 <= num_layers <= config.num_layers:
        raise InvalidOption(
            f"num_layers={num_layers} is not allowed; the model has {config.num_layers} layers, "
            f"so give 1 … {config.num_layers}."
        )


def attention_shape(config: ModelConfig) -> AttentionShape:
    return AttentionShape(
        config.num_heads, config.num_kv_heads, config.head_dim, config.sliding_window
    )


@dataclass(frozen=True)
class _Loader:
    """Loads weights from the checkpoint onto the kernel set, by name."""

    checkpoint: Checkpoint
    kernels: Kernels

    def layer(self, idx: int) -> Layer:
        block = f"model.layers.{idx}"
        attn, mlp = f"{block}.self_attn", f"{block}.mlp"
        qk_norm = self.checkpoint.config.qk_norm
        return Layer(
            input_norm=self.norm(f"{block}.input_layernorm"),
            qkv=self.matrix(*(f"{attn}.{part}_proj.weight" for part in "qkv")),
            q_norm=self.norm(f"{attn}.q_norm") if qk_norm else None,
            k_norm=self.norm(f"{attn}.k_norm") if qk_norm else None,
            out=self.matrix(f"{attn}.o_proj.weight"),
            mlp_norm=self.norm(f"{block}.post_attention_layernorm"),
            gate_up=self.matrix(f"{mlp}.gate_proj.weight", f"{mlp}.up_proj.weight"),
            down=self.matrix(f"{mlp}.down_proj.weight"),
        )

    def norm(self, name: str) -> Norm:
        safe_point()
        weight = self.kernels.load_vector(self.checkpoint, f"{name}.weight")
        return Norm(weight, self.checkpoint.config.rms_norm_eps)

    def matrix(self, *names: str) -> Weight:
        """Load matrices stacked into one, with their biases if the file has them."""
        safe_point()
        biases = [name.removesuffix("weight") + "bias" for name in names]
        biases = [name for name in biases if self.checkpoint.has(name)]
        return self.kernels.load_matrix(self.checkpoint, names, biases)
