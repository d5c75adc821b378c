"""Small model files, written by the formats' own libraries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file

from forerun.models.config import ModelConfig
from forerun.models.weights.layout import required_shapes

Arrays = dict[str, npt.NDArray[Any]]

LLAMA = ModelConfig(
    architecture="llama",
    vocab_size=8,
    hidden_size=32,
    intermediate_size=32,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    max_len=64,
    tie_embeddings=True,
)
TOKENS = ["<unk>", "<s>", "</s>", "a", "b", "ab", "<0x0A>", "▁"]

_GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def random_arrays(config: ModelConfig, seed: int = 0) -> Arrays:
    """Random float32 weights for every tensor of `config`, by Hugging Face names."""
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(shape, np.float32) for name, shape in required_shapes(config)}


def gguf_name(name: str) -> str:
    """GGUF's name for a Hugging Face tensor."""
    stem, kind = name.rsplit(".", 1)
    if stem.startswith("model.layers."):
        _, _, layer, part = stem.split(".", 3)
        return f"blk.{layer}.{_GGUF_NAMES[part]}.{kind}"
    return f"{_GGUF_NAMES[stem]}.{kind}"


def interleaved(array: npt.NDArray[Any], num_heads: int) -> npt.NDArray[Any]:
    """Rows from halves to rotary pairs, as converters to GGUF write a llama's q and k."""
    halves = array.reshape(num_heads, 2, array.shape[0] // num_heads // 2, *array.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(array.shape))


def write_gguf(path: Path, config: ModelConfig, arrays: Arrays, **fields: Any) -> None:
    """A GGUF file of float32 weights; `fields` are metadata of the architecture."""
    writer = gguf.GGUFWriter(path, config.architecture)
    writer.add_block_count(config.num_layers)
    writer.add_context_length(config.max_len)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_heads)
    writer.add_head_count_kv(config.num_kv_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_theta)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    for name, value in fields.items():
        dotted = name.replace("__", ".")
        key = dotted if dotted.startswith("split.") else f"{config.architecture}.{dotted}"
        (writer.add_string if isinstance(value, str) else writer.add_float32)(key, value)
    _add_tokenizer(writer)
    for name, array in arrays.items():
        writer.add_tensor(name if name == "rope_freqs.weight" else gguf_name(name), array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_tokenizer(writer: gguf.GGUFWriter) -> None:
    writer.add_tokenizer_model("llama")
    writer.add_token_list(TOKENS)
    writer.add_token_scores([0.0, 0.0, 0.0, -1.0, -2.0, -3.0, 0.0, -4.0])
    writer.add_token_types([2, 3, 3, 1, 1, 1, 6, 1])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)


def write_tiny_gguf(path: Path, seed: int = 0) -> Arrays:
    """A whole llama file; returns its weights in half-split order."""
    arrays = random_arrays(LLAMA, seed)
    write_gguf(path, LLAMA, gguf_order(LLAMA, arrays))
    return arrays


def gguf_order(config: ModelConfig, arrays: Arrays) -> Arrays:
    """The arrays as a llama GGUF file holds them."""
    heads = {"q_proj": config.num_heads, "k_proj": config.num_kv_heads}
    result = dict(arrays)
    for name, array in arrays.items():
        for part, num_heads in heads.items():
            if part in name:
                result[name] = interleaved(array, num_heads)
    return result


def hf_values(config: ModelConfig, **changes: Any) -> dict[str, Any]:
    """The contents of a config.json; a change to None removes the key."""
    values = {
        "model_type": config.architecture,
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "max_position_embeddings": config.max_len,
        "rms_norm_eps": config.rms_norm_eps,
        "tie_word_embeddings": config.tie_embeddings,
        **changes,
    }
    return {name: value for name, value in values.items() if value is not None}


def write_hf(folder: Path, config: ModelConfig, arrays: Arrays, **changes: Any) -> None:
    """A Hugging Face directory with one safetensors file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(hf_values(config, **changes)))
    save_file(arrays, folder / "model.safetensors")


def write_shards(folder: Path, arrays: Arrays) -> None:
    """Replace a directory's single file by two shards and their index."""
    (folder / "model.safetensors").unlink()
    names = sorted(arrays)
    halves = {"one.safetensors": names[::2], "two.safetensors": names[1::2]}
    weight_map = {name: file for file, part in halves.items() for name in part}
    for file, part in halves.items():
        save_file({name: arrays[name] for name in part}, folder / file)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
