"""A model's shape from a Hugging Face config.json."""

from __future__ import annotations

from typing import Any

from forerun.errors import InvalidWeights, UnsupportedModel
from forerun.models.config import SUPPORTED_ARCHITECTURES, ModelConfig, RopeScaling
from forerun.models.fields import Fields


def read_hf_config(values: dict[str, Any], source: object) -> ModelConfig:
    """Read the shape from a config's `values`; errors name `source`."""
    architecture = values.get("model_type")
    if architecture not in SUPPORTED_ARCHITECTURES:
        supported = ", ".join(SUPPORTED_ARCHITECTURES)
        raise UnsupportedModel(
            f"{source}: architecture {architecture!r} is not supported; use one of {supported}."
        )
    fields = Fields(values, source)
    _refuse_variants(fields)
    num_heads, hidden_size = fields.integer("num_attention_heads"), fields.integer("hidden_size")
    max_len = fields.integer("max_position_embeddings", 2048)
    rope = _rope_fields(fields)
    usual_head_dim = 128 if architecture == "qwen3" else hidden_size // max(num_heads, 1)
    return ModelConfig(
        architecture=architecture,
        vocab_size=fields.integer("vocab_size"),
        hidden_size=hidden_size,
        intermediate_size=fields.integer("intermediate_size"),
        num_layers=fields.integer("num_hidden_layers"),
        num_heads=num_heads,
        num_kv_heads=fields.integer("num_key_value_heads", num_heads),
        head_dim=fields.integer("head_dim", usual_head_dim),
        max_len=max_len,
        rms_norm_eps=fields.number("rms_norm_eps", 1e-6),
        rope_theta=rope.number("rope_theta", fields.number("rope_theta", 10000.0)),
        rope_scaling=_rope_scaling(rope, max_len),
        sliding_window=_sliding_window(fields, architecture),
        tie_embeddings=fields.flag("tie_word_embeddings", False),
        attention_bias=fields.flag("attention_bias", architecture == "qwen2"),
        qk_norm=architecture == "qwen3",
    )


def _refuse_variants(fields: Fields) -> None:
    activation = fields.get("hidden_act", "silu")
    if activation != "silu":
        raise UnsupportedModel(
            f"{fields.source}: activation {activation!r} is not supported; use a model with silu."
        )
    if fields.get("quantization_config"):
        raise UnsupportedModel(
            f"{fields.source}: quantised safetensors are not supported; "
            "use float weights or a GGUF file."
        )


def _rope_fields(fields: Fields) -> Fields:
    """Return the rope settings: `rope_parameters` in new files, `rope_scaling` in older ones."""
    for name in ("rope_parameters", "rope_scaling"):
        value = fields.get(name)
        if value is None:
            continue
        if not isinstance(value, dict):
            raise InvalidWeights(f"{fields.source}: {name!r} must be an object.")
        return Fields(value, fields.source)
    return Fields({}, fields.source)


def _rope_scaling(rope: Fields, max_len: int) -> RopeScaling | None:
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return None
    if kind == "linear":
        return RopeScaling("linear", rope.number("factor"))
    if kind == "llama3":
        return RopeScaling(
            "llama3",
            rope.number("factor"),
            rope.number("low_freq_factor"),
            rope.number("high_freq_factor"),
            rope.integer("original_max_position_embeddings", max_len),
        )
    raise UnsupportedModel(
        f"{rope.source}: rope scaling {kind!r} is not supported; use default, linear or llama3."
    )


def _sliding_window(fields: Fields, architecture: str) -> int | None:
    """Return the sliding window, None for full attention.

    Mistral has it in every layer; Qwen, if `use_sliding_window` is set, in those from
    `max_window_layers` on. Defaults are those of transformers; null means no window."""
    is_given = "sliding_window" in fields.values
    window = fields.integer("sliding_window", 0 if is_given else 4096) or None
    if architecture == "mistral":
        return window
    if architecture == "llama" or not fields.flag("use_sliding_window", False):
        return None
    num_full = fields.integer("max_window_layers", 28)
    if window is None or num_full >= fields.integer("num_hidden_layers"):
        return None
    if num_full > 0:
        raise UnsupportedModel(
            f"{fields.source}: a sliding window in only some layers is not supported; "
            "set use_sliding_window to false for prompts within the window."
        )
    return window
