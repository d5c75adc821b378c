"""A narrow model with the target's tokenizer, trained on the target's own text.

Its folder is an ordinary Llama checkpoint with a tokenizer, which `draft_model` and other engines
load too. Loaded as `distilled`, it is checked against its target, and its matrices are packed.
"""

from __future__ import annotations

from typing import Any

from forerun.drafters.draft_model import DraftModel
from forerun.drafters.heads.config import HeadConfig
from forerun.drafters.heads.folder import HeadFolder
from forerun.kernels import Kernels
from forerun.models.config import ModelConfig
from forerun.models.llama import LlamaModel
from forerun.models.weights.layout import check_config, required_shapes


def distilled_shapes(config: HeadConfig) -> dict[str, tuple[int, ...]]:
    return dict(required_shapes(_model_config(config)))


def load_distilled(folder: HeadFolder, kernels: Kernels) -> DraftModel:
    source = _Source(folder)
    check_config(source.config, folder.path)
    folder.check(distilled_shapes(folder.config))
    return DraftModel(LlamaModel.load(source, kernels), folder.config.target_vocab_size)


def _model_config(config: HeadConfig) -> ModelConfig:
    return ModelConfig(
        architecture="llama",
        vocab_size=config.target_vocab_size,
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_layers=config.num_hidden_layers,
        num_heads=config.num_heads,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        max_len=config.max_len,
        rms_norm_eps=config.rms_norm_eps,
        rope_theta=config.rope_theta,
        tie_embeddings=True,
    )


class _Source:
    """The folder as a `Checkpoint`."""

    def __init__(self, folder: HeadFolder) -> None:
        self.config = _model_config(folder.config)
        self.names, self.has = folder.names, folder.has
        self.tensor, self.float32 = folder.tensor, folder.float32

    def metadata(self) -> dict[str, Any]:
        return {}
