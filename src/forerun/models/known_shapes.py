"""Shapes of models without their files: by a known name, as JSON, or from a config.json."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from forerun.errors import UnsupportedModel, unknown_name
from forerun.models.config import ModelConfig
from forerun.models.hf.config import read_hf_config
from forerun.models.hf.json_file import json_object, read_json
from forerun.models.weights.layout import check_config

_KEYS: Final = (
    *("model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers"),
    *("num_attention_heads", "num_key_value_heads", "head_dim", "tie_word_embeddings"),
)
_KNOWN: Final[Mapping[str, tuple[Any, ...]]] = {
    "smollm2-135m": ("llama", 49152, 576, 1536, 30, 9, 3, 64, True),
    "smollm2-360m": ("llama", 49152, 960, 2560, 32, 15, 5, 64, True),
    "smollm2-1.7b": ("llama", 49152, 2048, 8192, 24, 32, 32, 64, True),
    "llama-3.2-1b": ("llama", 128256, 2048, 8192, 16, 32, 8, 64, True),
    "llama-3.2-3b": ("llama", 128256, 3072, 8192, 28, 24, 8, 128, True),
    "llama-3.1-8b": ("llama", 128256, 4096, 14336, 32, 32, 8, 128, False),
    "llama-3.1-70b": ("llama", 128256, 8192, 28672, 80, 64, 8, 128, False),
    "qwen2.5-0.5b": ("qwen2", 151936, 896, 4864, 24, 14, 2, 64, True),
    "qwen2.5-7b": ("qwen2", 152064, 3584, 18944, 28, 28, 4, 128, False),
}
KNOWN_SHAPES: Final = tuple(_KNOWN)


def read_shape(text: str) -> ModelConfig:
    """Read a shape from a known name, a JSON object, a config.json, or a folder with one."""
    if text.lower() in _KNOWN:
        return shape_from_config(dict(zip(_KEYS, _KNOWN[text.lower()], strict=True)))
    if text.lstrip().startswith("{"):
        return shape_from_config(json_object(text, "the given JSON"))
    path = Path(text)
    file = path / "config.json" if path.is_dir() else path
    if path.suffix != ".json" and not path.exists():
        raise unknown_name("model shape", text, KNOWN_SHAPES)
    return shape_from_config(read_json(file), file)


def shape_from_config(
    values: Mapping[str, Any], source: object = "the given config"
) -> ModelConfig:
    """Read a shape from the keys of a Hugging Face config.json; `model_type` defaults to llama."""
    config = read_hf_config({"model_type": "llama", **values}, source)
    check_config(config, source)
    if values.get("mlp_bias") or (config.attention_bias and config.architecture != "qwen2"):
        raise UnsupportedModel(f"{source} has biases that nobody counts here; set them false.")
    return config
