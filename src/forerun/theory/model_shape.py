"""The sizes of a decoder of the Llama family, and how many parameters they make."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from forerun.errors import InvalidOption, unknown_name
from forerun.files import MAX_JSON_BYTES, read_bytes
from forerun.option_checks import require_known
from forerun.theory.ranges import check_count


@dataclass(frozen=True)
class ModelShape:
    """Gated MLP, RMS norms without bias, grouped key/value heads."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    tie_embeddings: bool = False  # the output head is the embedding table
    qkv_bias: bool = False  # q, k and v carry biases (Qwen2)
    qk_norm: bool = False  # q and k are normalised per head (Qwen3)

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.default is False:
                _check_switch(value, field.name)
            else:
                check_count(value, field.name)
        if self.num_heads % self.num_kv_heads:
            raise InvalidOption(
                f"{self.num_heads} heads cannot share {self.num_kv_heads} key/value heads "
                f"evenly; num_heads must be a multiple of num_kv_heads."
            )

    @property
    def num_matrix_params(self) -> int:
        """Weights that are multiplied with: embeddings, attention, MLP, output head."""
        num_tables = 1 if self.tie_embeddings else 2
        attention = 2 * self.hidden_size * (self.num_heads + self.num_kv_heads) * self.head_dim
        mlp = 3 * self.hidden_size * self.intermediate_size
        return num_tables * self.vocab_size * self.hidden_size + self.num_layers * (attention + mlp)

    @property
    def num_vector_params(self) -> int:
        """Norm weights and biases."""
        per_layer = 2 * self.hidden_size
        if self.qkv_bias:
            per_layer += (self.num_heads + 2 * self.num_kv_heads) * self.head_dim
        if self.qk_norm:
            per_layer += 2 * self.head_dim
        return self.num_layers * per_layer + self.hidden_size

    @property
    def num_params(self) -> int:
        return self.num_matrix_params + self.num_vector_params

    @property
    def kv_values_per_token(self) -> int:
        """Numbers one token leaves in the cache: a key and a value per layer and KV head."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim


def _check_switch(value: bool, name: str) -> None:
    if not isinstance(value, bool):
        raise InvalidOption(f"{name} is {value!r}; give true or false.")


KNOWN_SHAPES: Final[Mapping[str, ModelShape]] = {
    "smollm2-135m": ModelShape(49152, 576, 1536, 30, 9, 3, 64, tie_embeddings=True),
    "smollm2-360m": ModelShape(49152, 960, 2560, 32, 15, 5, 64, tie_embeddings=True),
    "smollm2-1.7b": ModelShape(49152, 2048, 8192, 24, 32, 32, 64, tie_embeddings=True),
    "llama-3.2-1b": ModelShape(128256, 2048, 8192, 16, 32, 8, 64, tie_embeddings=True),
    "llama-3.2-3b": ModelShape(128256, 3072, 8192, 28, 24, 8, 128, tie_embeddings=True),
    "llama-3.1-8b": ModelShape(128256, 4096, 14336, 32, 32, 8, 128),
    "llama-3.1-70b": ModelShape(128256, 8192, 28672, 80, 64, 8, 128),
    "qwen2.5-0.5b": ModelShape(
        151936, 896, 4864, 24, 14, 2, 64, tie_embeddings=True, qkv_bias=True
    ),
    "qwen2.5-7b": ModelShape(152064, 3584, 18944, 28, 28, 4, 128, qkv_bias=True),
}

# Hugging Face model types whose parameters this module can count.
FAMILIES: Final = ("llama", "mistral", "qwen2", "qwen3")


def read_shape(text: str) -> ModelShape:
    """A shape from a known name, a JSON object, or the path of a Hugging Face config.json."""
    if text.lstrip().startswith("{"):
        return _shape_from_json(text, "the given JSON")
    if text.lower() in KNOWN_SHAPES:
        return KNOWN_SHAPES[text.lower()]
    found = _config_text(Path(text))
    if found is None:
        raise unknown_name("model shape", text, KNOWN_SHAPES)
    return _shape_from_json(found, text)


def _config_text(path: Path) -> str | None:
    """The config.json at `path` or in that folder; None if `path` is neither."""
    try:
        file = path / "config.json" if path.is_dir() else path
        if not (path.exists() or path.suffix == ".json"):
            return None
        return read_bytes(file, MAX_JSON_BYTES).decode("utf-8", errors="replace")
    except OSError as error:
        reason = error.strerror or "it is not readable"
        raise InvalidOption(f"cannot read {path}: {reason}; give a config.json.") from None


def _shape_from_json(text: str, source: str) -> ModelShape:
    try:
        config = json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidOption(f"{source} is not valid JSON; give an object of sizes.") from None
    if not isinstance(config, dict):
        raise InvalidOption(f"{source} is not a JSON object; give one, such as a config.json.")
    return shape_from_config(config, source)


def shape_from_config(config: Mapping[str, Any], source: str = "the config") -> ModelShape:
    """A shape from the keys of a Hugging Face config.json; `model_type` is llama if not given."""
    family = str(config.get("model_type", "llama"))
    require_known("model_type", FAMILIES, family)
    if config.get("mlp_bias") or (config.get("attention_bias") and family != "qwen2"):
        raise InvalidOption(f"{source} has biases that this budget does not count; set them false.")
    num_heads = _size(config, "num_attention_heads", source)
    hidden_size = _size(config, "hidden_size", source)
    return ModelShape(
        vocab_size=_size(config, "vocab_size", source),
        hidden_size=hidden_size,
        intermediate_size=_size(config, "intermediate_size", source),
        num_layers=_size(config, "num_hidden_layers", source),
        num_heads=num_heads,
        num_kv_heads=_size(config, "num_key_value_heads", source, default=num_heads),
        head_dim=_size(config, "head_dim", source, default=hidden_size // num_heads),
        tie_embeddings=config.get("tie_word_embeddings", False),
        qkv_bias=family == "qwen2",
        qk_norm=family == "qwen3",
    )


def _size(config: Mapping[str, Any], key: str, source: str, default: int | None = None) -> int:
    value = config.get(key)
    if value is None:
        value = default
    if value is None:
        raise InvalidOption(f"{source} has no {key}; add it.")
    return check_count(value, key)
