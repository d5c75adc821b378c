"""A whole model on disk that a test can load as users do: config, weights, tokenizer, template."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from safetensors.numpy import save_file

from forerun.models.text.token_bytes import BYTE_LETTERS
from tests.models_llama.tiny import TinyCheckpoint, tiny_config

EOS, BOS = "<|end|>", "<|start|>"
LETTERS = "abcdefghijklmnopqrstuvwxyz .,\n"
MARKS = ("<think>", "</think>")  # around a model's reasoning
JSON_LETTERS = LETTERS + '0123456789"{}[]:-_<>/'
TEMPLATE = (
    "{% for m in messages %}<|start|>{{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|start|>{% endif %}"
)


def write_tiny_model(folder: Path, seed: int = 0, sharpness: float = 3.0, **changes: Any) -> Path:
    """Write a model with random weights; its tokens are single letters, `added`, EOS and BOS.

    `sharpness` scales the output head: a drafter can guess only a model that is fairly sure.
    """
    letters, added = changes.pop("letters", LETTERS), changes.pop("added", ())
    folder.mkdir(parents=True, exist_ok=True)
    spelled = {byte: letter for letter, byte in BYTE_LETTERS.items()}
    vocab = {spelled[ord(letter)]: idx for idx, letter in enumerate(letters)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(False, use_regex=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_tokens(list(added))
    tokenizer.add_special_tokens([EOS, BOS])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = tiny_config(**{"vocab_size": len(vocab) + len(added) + 2, "max_len": 256, **changes})
    checkpoint = TinyCheckpoint(config, seed)
    weights = {name: checkpoint.float32(name) for name in checkpoint.names()}
    weights["lm_head.weight"] = weights["lm_head.weight"] * np.float32(sharpness)
    save_file(weights, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(_hf_config(config)))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"eos_token": EOS, "bos_token": BOS, "chat_template": TEMPLATE})
    )
    return folder


def _hf_config(config: Any) -> dict[str, Any]:
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "max_position_embeddings": config.max_len,
        "rms_norm_eps": config.rms_norm_eps,
        "rope_theta": config.rope_theta,
        "tie_word_embeddings": False,
        "eos_token_id": config.vocab_size - 2,
        "bos_token_id": config.vocab_size - 1,
    }
