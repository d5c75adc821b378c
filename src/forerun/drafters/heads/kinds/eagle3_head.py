"""EAGLE-3 (Li et al. 2025): one decoder layer over the target's features, with a draft vocabulary.

    g = fc([feature of each layer])                       or the output fed back
    x = g + attention([norm(embedding) ; norm(g)])
    x = x + mlp(norm(x))                                  fed back
    logits = lm_head(norm(x))                             of the draft vocabulary

EAGLE-3.1 adds a norm of each feature before `fc`, and feeds back the output of the last norm.
"""

from __future__ import annotations

from dataclasses import dataclass

from forerun.drafters.heads.cached_head import DecoderLayer, HeadLoader, check_sizes, layer_shapes
from forerun.drafters.heads.config import HeadConfig
from forerun.drafters.heads.fed_back_head import FedBackHead
from forerun.drafters.heads.folder import D2T, EMBEDDING, HeadFolder
from forerun.kernels import Norm, TappedKernels
from forerun.kernels.base import Array, Batch, Store, Weight


def eagle3_shapes(config: HeadConfig) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the head's weights; an embedding of its own may be added."""
    c, size = config, config.target_hidden_size
    norms = ["norm", "midlayer.hidden_norm"]
    norms += [f"fc_norm.{idx}" for idx in range(len(c.layers))] if c.fc_norm else []
    return {
        **{f"{name}.weight": (size,) for name in norms},
        "fc.weight": (size, len(c.layers) * size),
        **layer_shapes(config, "midlayer", num_inputs=2),
        "lm_head.weight": (c.draft_vocab_size, size),
        D2T: (c.draft_vocab_size,),
    }


@dataclass(frozen=True, eq=False)
class Eagle3Head(FedBackHead):
    fc: Weight
    fc_norms: tuple[Norm, ...]
    hidden_norm: Norm
    midlayer: DecoderLayer  # its first norm is that of the embedding
    norm: Norm

    @classmethod
    def load(cls, folder: HeadFolder, kernels: TappedKernels, embedding: Weight) -> Eagle3Head:
        """Load the head; `embedding` is the target's, for folders without one of their own."""
        config = folder.config
        check_sizes(folder)
        has_own = folder.has(EMBEDDING)
        own = {EMBEDDING: (config.target_vocab_size, config.target_hidden_size)} if has_own else {}
        shapes = {**eagle3_shapes(config), **own}
        if config.draft_vocab_size == config.target_vocab_size and not folder.has(D2T):
            del shapes[D2T]  # the draft vocabulary is the target's
        folder.check(shapes)
        loader = HeadLoader(folder, kernels)
        num_norms = len(config.layers) if config.fc_norm else 0
        return cls(
            config,
            kernels,
            folder.draft_tokens(),
            loader.matrix("embed_tokens") if has_own else embedding,
            loader.matrix("lm_head"),
            loader.matrix("fc"),
            tuple(loader.norm(f"fc_norm.{idx}") for idx in range(num_norms)),
            loader.norm("midlayer.hidden_norm"),
            loader.layer("midlayer"),
            loader.norm("norm"),
        )

    def fused(self, batch: Batch) -> Array:
        k = self.kernels
        features = [k.given(batch, idx) for idx in range(len(self.config.layers))]
        if self.fc_norms:
            pairs = zip(features, self.fc_norms, strict=True)
            features = [k.add_norm(x, None, norm)[1] for x, norm in pairs]
        return k.linear(k.concat(features), self.fc)

    def layer(self, x: Array, batch: Batch, store: Store) -> tuple[Array, Array]:
        k, own = self.kernels, self.midlayer
        _, e = k.add_norm(k.embed(self.embedding, batch), None, own.input_norm)
        x, h = k.add_norm(x, None, self.hidden_norm)
        q = k.rope_write(k.linear(k.concat([e, h]), own.qkv), batch, store, 0)
        if self.config.norm_before_residual:
            x = k.concat([h])
        x, h = k.add_norm(x, k.linear(k.attend(q, batch, store, 0), own.out), own.mlp_norm)
        delta = k.linear(k.silu_mul(k.linear(h, own.gate_up)), own.down)
        x, h = k.add_norm(k.select(x, batch), k.select(delta, batch), self.norm)
        return (k.concat([h]) if self.config.norm_output else x), h
