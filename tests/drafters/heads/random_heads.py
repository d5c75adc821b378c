"""Heads with random weights for small targets, on disk as users have them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from forerun.drafters.heads import HEAD_KINDS, HeadConfig, save_head
from forerun.drafters.heads.folder import D2T
from forerun.models.config import ModelConfig


def eagle3_config(target: ModelConfig, tokenizer_hash: str = "", **changes: Any) -> HeadConfig:
    options: dict[str, Any] = {
        "kind": "eagle3",
        "layers": (0, target.num_layers - 1, target.num_layers),
        "target_hidden_size": target.hidden_size,
        "target_vocab_size": target.vocab_size,
        "target_num_layers": target.num_layers,
        "tokenizer_hash": tokenizer_hash,
        "draft_vocab_size": target.vocab_size - 2,
        "intermediate_size": 40,
        "num_heads": 4,
        "num_kv_heads": 2,
        "head_dim": 8,
        "max_len": target.max_len,
        "fc_norm": True,
    }
    return HeadConfig(**{**options, **changes})


def medusa_config(target: ModelConfig, tokenizer_hash: str = "", **changes: Any) -> HeadConfig:
    last = {"kind": "medusa", "layers": (target.num_layers,), "num_guesses": 4}
    return eagle3_config(target, tokenizer_hash, **{**last, **changes})


def block_config(target: ModelConfig, tokenizer_hash: str = "", **changes: Any) -> HeadConfig:
    sizes = {"kind": "block", "num_hidden_layers": 2, "markov_rank": 4, "num_guesses": 4}
    return eagle3_config(target, tokenizer_hash, **{**sizes, **changes})


def blockwise_config(target: ModelConfig, tokenizer_hash: str = "", **changes: Any) -> HeadConfig:
    return medusa_config(target, tokenizer_hash, **{"kind": "blockwise", **changes})


def mtp_config(target: ModelConfig, tokenizer_hash: str = "", **changes: Any) -> HeadConfig:
    whole = {"kind": "mtp", "layers": (target.num_layers,), "draft_vocab_size": target.vocab_size}
    return eagle3_config(target, tokenizer_hash, **{**whole, **changes})


def pass_config(target: ModelConfig, tokenizer_hash: str = "", **changes: Any) -> HeadConfig:
    return mtp_config(target, tokenizer_hash, **{"kind": "pass", "num_guesses": 4, **changes})


def distilled_config(target: ModelConfig, tokenizer_hash: str = "", **changes: Any) -> HeadConfig:
    sizes = {"kind": "distilled", "hidden_size": 32, "num_hidden_layers": 2}
    return mtp_config(target, tokenizer_hash, **{**sizes, **changes})


CONFIGS = {
    "block": block_config,
    "blockwise": blockwise_config,
    "distilled": distilled_config,
    "eagle3": eagle3_config,
    "medusa": medusa_config,
    "mtp": mtp_config,
    "pass": pass_config,
}


def write_head(folder: Path, config: HeadConfig, seed: int = 0) -> Path:
    shapes = HEAD_KINDS[config.kind].shapes(config)
    save_head(folder, config, random_weights(config, shapes, seed))
    return folder


write_block = write_eagle3 = write_medusa = write_head


def random_weights(
    config: HeadConfig, shapes: dict[str, tuple[int, ...]], seed: int
) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    weights: dict[str, Any] = {}
    for name, shape in shapes.items():
        drawn = rng.standard_normal(shape) / np.sqrt(shape[-1])
        if len(shape) == 1 and "norm" in name:
            drawn = rng.uniform(0.5, 1.5, shape)
        weights[name] = (3 * drawn if name == "lm_head.weight" else drawn).astype(np.float32)
    num = config.draft_vocab_size
    tokens = np.sort(rng.permutation(config.target_vocab_size)[:num])
    if D2T in shapes:
        weights[D2T] = tokens - np.arange(num)
    return weights
