"""A model's shape from GGUF metadata."""

from __future__ import annotations

from pathlib import Path

from forerun.errors import InvalidWeights, UnsupportedModel
from forerun.models.config import SUPPORTED_ARCHITECTURES, ModelConfig, RopeScaling
from forerun.models.fields import Fields
from forerun.models.gguf.header import GgufHeader

# Mistral files say "llama": the converter writes one architecture for both.
_ARCHITECTURES = ("llama", "qwen2", "qwen3")


def read_gguf_config(header: GgufHeader, path: Path) -> ModelConfig:
    """Return the config that the metadata and the list of tensors describe."""
    architecture = _architecture(header, path)
    fields = Fields(header.metadata, path, f"{architecture}.")
    _refuse_variants(fields)
    num_heads = fields.integer("attention.head_count")
    hidden_size = fields.integer("embedding_length")
    embedding = header.tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise InvalidWeights(f"{path}: tensor 'token_embd.weight' is missing; download it again.")
    return ModelConfig(
        architecture=architecture,
        vocab_size=embedding.shape[0],
        hidden_size=hidden_size,
        intermediate_size=fields.integer("feed_forward_length"),
        num_layers=fields.integer("block_count"),
        num_heads=num_heads,
        num_kv_heads=fields.integer("attention.head_count_kv", num_heads),
        head_dim=_head_dim(fields, hidden_size, num_heads),
        max_len=fields.integer("context_length"),
        rms_norm_eps=fields.number("attention.layer_norm_rms_epsilon"),
        rope_theta=fields.number("rope.freq_base", 10000.0),
        rope_scaling=_rope_scaling(fields),
        sliding_window=fields.integer("attention.sliding_window", 0) or None,
        tie_embeddings="output.weight" not in header.tensors,
        attention_bias="blk.0.attn_q.bias" in header.tensors,
        qk_norm="blk.0.attn_q_norm.weight" in header.tensors,
    )


def _architecture(header: GgufHeader, path: Path) -> str:
    name = header.metadata.get("general.architecture")
    if isinstance(name, str) and name in _ARCHITECTURES:
        return name
    supported = ", ".join(SUPPORTED_ARCHITECTURES)
    raise UnsupportedModel(
        f"{path}: architecture {str(name)[:40]!r} is not supported; use one of {supported}."
    )


def _refuse_variants(fields: Fields) -> None:
    num_parts = fields.values.get("split.count", 1)
    if isinstance(num_parts, int | float) and num_parts > 1:
        raise UnsupportedModel(
            f"{fields.source} is one part of a split model; join the parts into one file "
            "(llama-gguf-split --merge)."
        )
    if fields.integer("expert_count", 0):
        raise UnsupportedModel(
            f"{fields.source}: mixtures of experts are not supported; use a dense model."
        )


def _head_dim(fields: Fields, hidden_size: int, num_heads: int) -> int:
    head_dim = fields.integer("attention.key_length", hidden_size // max(num_heads, 1))
    for name in ("attention.value_length", "rope.dimension_count"):
        other = fields.integer(name, head_dim)
        if other != head_dim:
            raise UnsupportedModel(
                f"{fields.source}: {name} {other} differs from the head size {head_dim}; "
                "use a model that rotates whole heads."
            )
    return head_dim


def _rope_scaling(fields: Fields) -> RopeScaling | None:
    kind = str(fields.get("rope.scaling.type", "none"))[:40]
    if kind == "none":
        return None
    if kind != "linear":
        raise UnsupportedModel(
            f"{fields.source}: rope scaling {kind!r} is not supported; use linear or llama3."
        )
    return RopeScaling("linear", fields.number("rope.scaling.factor"))
