"""EAGLE-3 (Li et al. 2025): one decoder layer over features of the target, and its own vocabulary.

    row j    token j + 1, and the target's hidden states at position j      known
             a guess,     and the head's own output at its parent           guessed

    g = fc([feature of each layer])                       or what was fed back
    x = g + attention([norm(embedding) ; norm(g)])
    x = x + mlp(norm(x))                                  fed back
    logits = lm_head(norm(x))                             of the draft vocabulary

3.1 adds a norm of each feature before `fc`, and feeds back what has passed the last norm.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from forerun.cache import KVCache
from forerun.drafters.heads.config import HeadConfig
from forerun.drafters.heads.folder import D2T, EMBEDDING, HeadFolder
from forerun.errors import InvalidWeights
from forerun.interrupts import Uninterrupted
from forerun.kernels import (
    AttentionShape,
    Body,
    ChainKernels,
    ChainNoise,
    Norm,
    Plan,
    TappedKernels,
)
from forerun.kernels.base import Array, Batch, Store, Weight
from forerun.types import FloatArray, IntArray

F32 = npt.NDArray[np.float32]

_ATTN, _MLP = "midlayer.self_attn", "midlayer.mlp"


def eagle3_shapes(config: HeadConfig) -> dict[str, tuple[int, ...]]:
    """The weights that such a head has; an embedding of its own may be added."""
    c, size = config, config.target_hidden_size
    q_len, kv_len = c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim
    norms = ["norm", *(f"midlayer.{n}_norm" for n in ("hidden",))]
    norms += [f"midlayer.{name}_layernorm" for name in ("input", "post_attention")]
    norms += [f"fc_norm.{idx}" for idx in range(len(c.layers))] if c.fc_norm else []
    return {
        **{f"{name}.weight": (size,) for name in norms},
        "fc.weight": (size, len(c.layers) * size),
        f"{_ATTN}.q_proj.weight": (q_len, 2 * size),
        f"{_ATTN}.k_proj.weight": (kv_len, 2 * size),
        f"{_ATTN}.v_proj.weight": (kv_len, 2 * size),
        f"{_ATTN}.o_proj.weight": (size, q_len),
        f"{_MLP}.gate_proj.weight": (c.intermediate_size, size),
        f"{_MLP}.up_proj.weight": (c.intermediate_size, size),
        f"{_MLP}.down_proj.weight": (size, c.intermediate_size),
        "lm_head.weight": (c.draft_vocab_size, size),
        D2T: (c.draft_vocab_size,),
    }


@dataclass(frozen=True, eq=False)
class Eagle3Head:
    """Weights on a kernel set, and the two passes over them."""

    config: HeadConfig
    kernels: TappedKernels
    tokens: IntArray  # [draft V]: the target's id of each draft id
    embedding: Weight
    fc: Weight
    fc_norms: tuple[Norm, ...]
    input_norm: Norm
    hidden_norm: Norm
    qkv: Weight
    out: Weight
    mlp_norm: Norm
    gate_up: Weight
    down: Weight
    norm: Norm
    head: Weight

    @classmethod
    def load(cls, folder: HeadFolder, kernels: TappedKernels, embedding: Weight) -> Eagle3Head:
        """`embedding` is the target's, taken where the folder has none of its own."""
        config = folder.config
        _check_sizes(config, folder)
        has_own = folder.has(EMBEDDING)
        own = {EMBEDDING: (config.target_vocab_size, config.target_hidden_size)} if has_own else {}
        shapes = {**eagle3_shapes(config), **own}
        if config.draft_vocab_size == config.target_vocab_size and not folder.has(D2T):
            del shapes[D2T]  # it guesses all ids
        folder.check(shapes)

        def matrix(*names: str) -> Weight:
            return kernels.load_matrix(folder, [f"{name}.weight" for name in names])

        def norm(name: str) -> Norm:
            return Norm(kernels.load_vector(folder, f"{name}.weight"), config.rms_norm_eps)

        num_norms = len(config.layers) if config.fc_norm else 0
        return cls(
            config,
            kernels,
            folder.draft_tokens(),
            matrix("embed_tokens") if has_own else embedding,
            matrix("fc"),
            tuple(norm(f"fc_norm.{idx}") for idx in range(num_norms)),
            norm("midlayer.input_layernorm"),
            norm("midlayer.hidden_norm"),
            matrix(*(f"{_ATTN}.{part}_proj" for part in "qkv")),
            matrix(f"{_ATTN}.o_proj"),
            norm("midlayer.post_attention_layernorm"),
            matrix(f"{_MLP}.gate_proj", f"{_MLP}.up_proj"),
            matrix(f"{_MLP}.down_proj"),
            norm("norm"),
            matrix("lm_head"),
        )

    @cached_property
    def shape(self) -> AttentionShape:
        return AttentionShape(self.config.num_heads, self.config.num_kv_heads, self.config.head_dim)

    @cached_property
    def _inv_freq(self) -> npt.NDArray[np.float64]:
        dim = self.config.head_dim
        return np.asarray(self.config.rope_theta ** (-np.arange(0, dim, 2) / dim))

    @cached_property
    def chain_kernels(self) -> ChainKernels | None:
        """The same kernels, if `chain` runs there; to ask a protocol takes as long as a pass."""
        return self.kernels if isinstance(self.kernels, ChainKernels) else None

    @cached_property
    def ids(self) -> Weight:
        """`tokens` where the kernels pick from them."""
        assert self.chain_kernels is not None, self.kernels.name
        return self.chain_kernels.load_array(self.tokens)

    def prepare(self) -> None:
        """What a chain takes along is loaded now."""
        if self.chain_kernels is not None:
            assert len(self.ids)

    @property
    def row_bytes(self) -> int:
        return self.kernels.row_bytes(self.shape, 1)

    def new_cache(self, num_pages: int, page_size: int) -> KVCache:
        return KVCache(self.kernels, self.shape, 1, num_pages, page_size)

    def known(self, plan: Plan, cache: KVCache, features: FloatArray) -> tuple[F32, F32]:
        """Over `features` [T, layers · E]: logits [R, draft V], and what to feed back [R, E]."""
        given = np.split(features, len(self.config.layers), axis=1)
        return self._run(self._known, plan, cache, given)

    def guessed(self, plan: Plan, cache: KVCache, fed_back: FloatArray) -> tuple[F32, F32]:
        """The same over its own outputs [T, E]."""
        return self._run(self._guessed, plan, cache, [fed_back])

    def chain(
        self, plan: Plan, cache: KVCache, features: FloatArray, depth: int, noise: ChainNoise
    ) -> F32:
        """`known` and then guess after guess of one request in one pass, on `ChainKernels`:
        `new_picks`. Behind the tokens that are known the plan has room for all guesses
        but the last, and wants all rows from the last known one on."""
        k = self.chain_kernels
        assert k is not None, self.kernels.name
        given = np.split(features, len(self.config.layers), axis=1)
        with Uninterrupted():
            batch = k.begin(plan, self.shape, self._inv_freq, given, noise)
            return k.run(_Chain(self, k, depth), batch, cache.store)

    def _run(
        self, body: Body, plan: Plan, cache: KVCache, given: list[FloatArray]
    ) -> tuple[F32, F32]:
        with Uninterrupted():
            batch = self.kernels.begin(plan, self.shape, self._inv_freq, given)
            logits = self.kernels.run(body, batch, cache.store)
            (fed_back,) = self.kernels.taps(batch)
            return logits, fed_back[: len(logits)]

    def _known(self, batch: Batch, store: Store) -> F32:
        return self._logits(self.fused(batch), batch, store)

    def _guessed(self, batch: Batch, store: Store) -> F32:
        return self._logits(self.kernels.given(batch, 0), batch, store)

    def _logits(self, x: Array, batch: Batch, store: Store) -> F32:
        fed_back, h = self.layer(x, batch, store)
        self.kernels.tap(fed_back, batch)
        return self.kernels.logits(h, self.head)

    def fused(self, batch: Batch) -> Array:
        k = self.kernels
        features = [k.given(batch, idx) for idx in range(len(self.config.layers))]
        if self.fc_norms:
            pairs = zip(features, self.fc_norms, strict=True)
            features = [k.add_norm(x, None, norm)[1] for x, norm in pairs]
        return k.linear(k.concat(features), self.fc)

    def layer(self, x: Array, batch: Batch, store: Store) -> tuple[Array, Array]:
        """Of the wanted rows: what is fed back, and what the head takes in."""
        k = self.kernels
        _, e = k.add_norm(k.embed(self.embedding, batch), None, self.input_norm)
        x, h = k.add_norm(x, None, self.hidden_norm)
        q = k.rope_write(k.linear(k.concat([e, h]), self.qkv), batch, store, 0)
        if self.config.norm_before_residual:
            x = k.concat([h])
        x, h = k.add_norm(x, k.linear(k.attend(q, batch, store, 0), self.out), self.mlp_norm)
        delta = k.linear(k.silu_mul(k.linear(h, self.gate_up)), self.down)
        x, h = k.add_norm(k.select(x, batch), k.select(delta, batch), self.norm)
        return (k.concat([h]) if self.config.norm_output else x), h


@dataclass(frozen=True)
class _Chain:
    """A body that equals another one of the same head and depth, so that it can be replayed."""

    head: Eagle3Head
    kernels: ChainKernels
    depth: int

    def __call__(self, batch: Batch, store: Store) -> F32:
        k, head = self.kernels, self.head
        num_known = k.num_known(batch)
        part = k.part(batch, 0, num_known)
        x, picks = head.fused(part), k.new_picks(batch, self.depth)
        for place in range(self.depth):
            x, h = head.layer(x, part, store)
            first = num_known + place
            if place + 1 == self.depth:
                k.pick(k.linear(h, head.head), head.ids, batch, picks, place)
            else:
                k.pick(k.linear(h, head.head), head.ids, batch, picks, place, token=first)
                part = k.part(batch, first, first + 1)
        return k.finish(picks)


def _check_sizes(config: HeadConfig, folder: HeadFolder) -> None:
    c = config
    sizes = (c.intermediate_size, c.num_heads, c.num_kv_heads, c.head_dim, c.max_len)
    if min(sizes) < 1 or c.num_heads % c.num_kv_heads or c.head_dim % 2:
        raise InvalidWeights(f"{folder.path}: its sizes {list(sizes)} fit no layer; train again.")
