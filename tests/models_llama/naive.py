"""The Llama family written a second time: whole sequences, dense masks, float64, no cache.

Nothing here is shared with the package, so that agreement means something.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from forerun.models.config import ModelConfig
from forerun.models.weights.checkpoint import Checkpoint

F64 = npt.NDArray[np.float64]


def naive_logits(checkpoint: Checkpoint, tokens: Sequence[int]) -> F64:
    """[T, V]"""
    x = naive_hidden_states(checkpoint, tokens)[-1]
    head = "model.embed_tokens.weight" if checkpoint.config.tie_embeddings else "lm_head.weight"
    return _norm(checkpoint, "model.norm", x) @ _weight(checkpoint, head).T


def naive_hidden_states(checkpoint: Checkpoint, tokens: Sequence[int]) -> list[F64]:
    """[T, E] each: the embedding, then the residual stream after every layer."""
    x = _weight(checkpoint, "model.embed_tokens.weight")[list(tokens)]
    states = [x]
    for idx in range(checkpoint.config.num_layers):
        block = f"model.layers.{idx}."
        x = x + _attention(checkpoint, block, _norm(checkpoint, f"{block}input_layernorm", x))
        x = x + _mlp(checkpoint, block, _norm(checkpoint, f"{block}post_attention_layernorm", x))
        states.append(x)
    return states


def _weight(checkpoint: Checkpoint, name: str) -> F64:
    return checkpoint.float32(name).astype(np.float64)


def _linear(checkpoint: Checkpoint, name: str, x: F64) -> F64:
    y: F64 = x @ _weight(checkpoint, f"{name}.weight").T
    return y + _weight(checkpoint, f"{name}.bias") if checkpoint.has(f"{name}.bias") else y


def _norm(checkpoint: Checkpoint, name: str, x: F64) -> F64:
    scale = np.sqrt((x**2).mean(-1, keepdims=True) + checkpoint.config.rms_norm_eps)
    y: F64 = x / scale * _weight(checkpoint, f"{name}.weight")
    return y


def _attention(checkpoint: Checkpoint, block: str, h: F64) -> F64:
    config, attn = checkpoint.config, f"{block}self_attn."
    q, k, v = (
        _linear(checkpoint, f"{attn}{part}_proj", h).reshape(len(h), -1, config.head_dim)
        for part in "qkv"
    )  # [T, heads, head_dim]
    if config.qk_norm:
        q, k = _norm(checkpoint, f"{attn}q_norm", q), _norm(checkpoint, f"{attn}k_norm", k)
    q, k = _rotated(config, q), _rotated(config, k)
    k, v = (np.repeat(part, config.num_heads // config.num_kv_heads, axis=1) for part in (k, v))
    scores = q.transpose(1, 0, 2) @ k.transpose(1, 2, 0) / math.sqrt(config.head_dim)  # [H, T, T]
    scores = np.where(_mask(config, len(h)), scores, -np.inf)
    probs = np.exp(scores - scores.max(-1, keepdims=True))
    probs /= probs.sum(-1, keepdims=True)
    mixed = (probs @ v.transpose(1, 0, 2)).transpose(1, 0, 2).reshape(len(h), -1)
    return _linear(checkpoint, f"{attn}o_proj", mixed)


def _mask(config: ModelConfig, num_tokens: int) -> npt.NDArray[np.bool_]:
    i, j = np.indices((num_tokens, num_tokens))
    return (j <= i) & (j > i - (config.sliding_window or num_tokens))


def _rotated(config: ModelConfig, x: F64) -> F64:
    """Lane pairs as complex numbers, turned by position × frequency."""
    half = config.head_dim // 2
    angles = np.outer(np.arange(len(x)), [_frequency(config, lane) for lane in range(half)])
    turned = (x[..., :half] + 1j * x[..., half:]) * np.exp(1j * angles)[:, None]
    return np.concatenate((turned.real, turned.imag), axis=-1)


def _frequency(config: ModelConfig, lane: int) -> float:
    plain = float(config.rope_theta ** (-2 * lane / config.head_dim))
    scaling = config.rope_scaling
    if scaling is None:
        return plain
    if scaling.kind == "linear":
        return plain / scaling.factor
    wavelength = 2 * math.pi / plain
    if wavelength < scaling.original_max_len / scaling.high_freq_factor:
        return plain
    if wavelength > scaling.original_max_len / scaling.low_freq_factor:
        return plain / scaling.factor
    ramp = (scaling.original_max_len / wavelength - scaling.low_freq_factor) / (
        scaling.high_freq_factor - scaling.low_freq_factor
    )
    return (1 - ramp) * plain / scaling.factor + ramp * plain


def _mlp(checkpoint: Checkpoint, block: str, h: F64) -> F64:
    gate = _linear(checkpoint, f"{block}mlp.gate_proj", h)
    up = _linear(checkpoint, f"{block}mlp.up_proj", h)
    return _linear(checkpoint, f"{block}mlp.down_proj", gate / (1 + np.exp(-gate)) * up)
