"""A model's shape from a Hugging Face config.json."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from forerun.errors import InvalidWeights, UnsupportedModel
from forerun.models.config import SUPPORTED_ARCHITECTURES, ModelConfig, RopeScaling

_LARGEST: Final = 1e30


@dataclass(frozen=True)
class _Fields:
    """A JSON object whose values are checked as they are read; null counts as absent."""

    values: dict[str, Any]
    path: Path

    def integer(self, name: str, default: int | None = None) -> int:
        value = self._value(name, default)
        if type(value) is not int:
            raise self._wrong(name, value, "a whole number")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        value = self._value(name, default)
        if type(value) not in (int, float) or abs(value) > _LARGEST:
            raise self._wrong(name, value, "a number")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        value = self._value(name, default)
        if not isinstance(value, bool):
            raise self._wrong(name, value, "true or false")
        return value

    def optional(self, name: str) -> int | None:
        return None if self.values.get(name) is None else self.integer(name)

    def _value(self, name: str, default: Any) -> Any:
        value = self.values.get(name)
        value = default if value is None else value
        if value is None:
            raise InvalidWeights(f"{self.path}: {name!r} is missing; download the file again.")
        return value

    def _wrong(self, name: str, value: Any, wanted: str) -> InvalidWeights:
        shown = repr(value)[:40]
        return InvalidWeights(f"{self.path}: {name!r} must be {wanted}, not {shown}.")


def read_hf_config(values: dict[str, Any], path: Path) -> ModelConfig:
    """The config in `values`, the contents of `path`."""
    architecture = values.get("model_type")
    if architecture not in SUPPORTED_ARCHITECTURES:
        supported = ", ".join(SUPPORTED_ARCHITECTURES)
        raise UnsupportedModel(
            f"{path}: architecture {architecture!r} is not supported; use one of {supported}."
        )
    fields = _Fields(values, path)
    _refuse_variants(fields)
    num_heads, hidden_size = fields.integer("num_attention_heads"), fields.integer("hidden_size")
    max_len = fields.integer("max_position_embeddings", 2048)
    rope = _rope_fields(fields)
    return ModelConfig(
        architecture=architecture,
        vocab_size=fields.integer("vocab_size"),
        hidden_size=hidden_size,
        intermediate_size=fields.integer("intermediate_size"),
        num_layers=fields.integer("num_hidden_layers"),
        num_heads=num_heads,
        num_kv_heads=fields.integer("num_key_value_heads", num_heads),
        head_dim=fields.integer(
            "head_dim", _default_head_dim(architecture, hidden_size, num_heads)
        ),
        max_len=max_len,
        rms_norm_eps=fields.number("rms_norm_eps", 1e-6),
        rope_theta=rope.number("rope_theta", fields.number("rope_theta", 10000.0)),
        rope_scaling=_rope_scaling(rope, max_len),
        sliding_window=_sliding_window(fields, architecture),
        tie_embeddings=fields.flag("tie_word_embeddings", False),
        attention_bias=fields.flag("attention_bias", architecture == "qwen2"),
        qk_norm=architecture == "qwen3",
    )


def _default_head_dim(architecture: str, hidden_size: int, num_heads: int) -> int:
    return 128 if architecture == "qwen3" else hidden_size // max(num_heads, 1)


def _refuse_variants(fields: _Fields) -> None:
    activation = fields.values.get("hidden_act", "silu")
    if activation != "silu":
        raise UnsupportedModel(
            f"{fields.path}: activation {activation!r} is not supported; use a model with silu."
        )
    if fields.values.get("quantization_config"):
        raise UnsupportedModel(
            f"{fields.path}: quantised safetensors are not supported; "
            "use float weights or a GGUF file."
        )


def _rope_fields(fields: _Fields) -> _Fields:
    """Rope settings: `rope_parameters` in new files, `rope_scaling` in older ones."""
    for name in ("rope_parameters", "rope_scaling"):
        value = fields.values.get(name)
        if value is None:
            continue
        if not isinstance(value, dict):
            raise InvalidWeights(f"{fields.path}: {name!r} must be an object.")
        return _Fields(value, fields.path)
    return _Fields({}, fields.path)


def _rope_scaling(rope: _Fields, max_len: int) -> RopeScaling | None:
    kind = rope.values.get("rope_type", rope.values.get("type", "default"))
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
        f"{rope.path}: rope scaling {kind!r} is not supported; use default, linear or llama3."
    )


def _sliding_window(fields: _Fields, architecture: str) -> int | None:
    """Mistral windows every layer; Qwen only where `use_sliding_window` asks for it."""
    window = fields.optional("sliding_window")
    if architecture == "mistral":
        return window
    if architecture == "llama" or not fields.flag("use_sliding_window", False):
        return None
    if fields.integer("max_window_layers", 0):
        raise UnsupportedModel(
            f"{fields.path}: a sliding window in only some layers is not supported; "
            "set use_sliding_window to false for prompts within the window."
        )
    return window
