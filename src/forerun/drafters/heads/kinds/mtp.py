"""Multi-token prediction (DeepSeek-V3, 2024): one more decoder layer, applied over and over.

    x = fc([norm(embedding) ; norm(the target's residual stream after its last layer)])
    x = one decoder layer over x                          fed back in place of the stream
    logits = the target's own head · norm(x)

Weights have the names of Qwen3-Next's checkpoints (`mtp.fc.weight`, `mtp.layers.0. …`). A head with
a reduced vocabulary has a matrix of its own, `lm_head.weight`.
"""

from __future__ import annotations

from dataclasses import dataclass

from forerun.drafters.heads.cached_head import DecoderLayer, HeadLoader, check_sizes, layer_shapes
from forerun.drafters.heads.config import HeadConfig
from forerun.drafters.heads.fed_back_head import FedBackHead
from forerun.drafters.heads.folder import D2T, HeadFolder
from forerun.errors import InvalidWeights
from forerun.kernels import Norm, TappedKernels
from forerun.kernels.base import Array, Batch, Store, Weight
from forerun.models.llama import LlamaModel

_NORMS = ("mtp.pre_fc_norm_embedding", "mtp.pre_fc_norm_hidden", "mtp.norm")


def mtp_shapes(config: HeadConfig) -> dict[str, tuple[int, ...]]:
    size, num = config.target_hidden_size, config.draft_vocab_size
    is_whole = num == config.target_vocab_size
    return {
        **{f"{name}.weight": (size,) for name in _NORMS},
        "mtp.fc.weight": (size, 2 * size),
        **layer_shapes(config, "mtp.layers.0"),
        **({} if is_whole else {"lm_head.weight": (num, size), D2T: (num,)}),
    }


@dataclass(frozen=True, eq=False)
class MtpHead(FedBackHead):
    embedding_norm: Norm
    hidden_norm: Norm
    fc: Weight
    decoder: DecoderLayer
    norm: Norm

    @classmethod
    def load(cls, folder: HeadFolder, kernels: TappedKernels, target: LlamaModel) -> MtpHead:
        config = folder.config
        check_sizes(folder)
        if config.layers != (config.target_num_layers,):
            raise InvalidWeights(
                f"{folder.path}: mtp needs the target's last layer; it has layers "
                f"{list(config.layers)}: train again."
            )
        shapes = mtp_shapes(config)
        folder.check(shapes)
        loader = HeadLoader(folder, kernels)
        return cls(
            config,
            kernels,
            folder.draft_tokens(),
            target.embedding,
            loader.matrix("lm_head") if D2T in shapes else target.head,
            loader.norm(_NORMS[0]),
            loader.norm(_NORMS[1]),
            loader.matrix("mtp.fc"),
            loader.layer("mtp.layers.0"),
            loader.norm(_NORMS[2]),
        )

    def fused(self, batch: Batch) -> Array:
        return self.kernels.given(batch, 0)

    def layer(self, x: Array, batch: Batch, store: Store) -> tuple[Array, Array]:
        k = self.kernels
        _, e = k.add_norm(k.embed(self.embedding, batch), None, self.embedding_norm)
        _, h = k.add_norm(x, None, self.hidden_norm)
        x, delta = self.decoder.run(k, k.linear(k.concat([e, h]), self.fc), None, batch, store)
        return k.add_norm(k.select(x, batch), k.select(delta, batch), self.norm)
