"""Heads read and run a second time, as other engines' sources say: float64, whole sequences.

EAGLE-3 by vllm/model_executor/models/llama_eagle3.py and SGLang's file of that name; Medusa by
medusa/model/medusa_model.py (FasterDecoding/Medusa). Nothing here is shared with the package.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file

F64 = npt.NDArray[np.float64]


class NaiveEagle3:
    """An EAGLE-3 head in another engine's folder: its logits after given hidden states."""

    def __init__(self, folder: Path) -> None:
        values = json.loads((folder / "config.json").read_text())
        weights = load_file(folder / "model.safetensors")
        self._values = values
        self._layer: dict[str, Any] = values.get("transformer_layer_config", values)
        self._map = weights.pop("d2t")
        del weights["t2d"]
        named = {name.replace("layers.0.", "midlayer."): w for name, w in weights.items()}
        self._weights = {name: w.astype(np.float64) for name, w in named.items()}

    def logits(self, features: F64, embeds: F64) -> F64:
        """[T, layers · E] and [T, E] to [T, V]: of the target's ids, -inf where it has none."""
        g = self._linear("fc", features)
        h, e = self._norm("midlayer.hidden_norm", g), self._norm("midlayer.input_layernorm", embeds)
        residual = h if self._values.get("norm_before_residual") else g
        x = residual + self._attention(np.concatenate((e, h), axis=-1))
        h = self._norm("midlayer.post_attention_layernorm", x)
        gate = self._linear("midlayer.mlp.gate_proj", h)
        up = self._linear("midlayer.mlp.up_proj", h)
        x = x + self._linear("midlayer.mlp.down_proj", gate / (1 + np.exp(-gate)) * up)
        found = self._linear("lm_head", self._norm("norm", x))
        whole = np.full((len(found), self._layer["vocab_size"]), -np.inf)
        whole[:, np.arange(len(self._map)) + self._map] = found
        return whole

    def _attention(self, x: F64) -> F64:
        dim = self._layer["head_dim"]
        q, k, v = (
            self._linear(f"midlayer.self_attn.{part}_proj", x).reshape(len(x), -1, dim)
            for part in "qkv"
        )  # [T, heads, dim]
        q, k = self._rotated(q), self._rotated(k)
        groups = self._layer["num_attention_heads"] // self._layer["num_key_value_heads"]
        k, v = np.repeat(k, groups, axis=1), np.repeat(v, groups, axis=1)
        scores = np.einsum("ihd,jhd->hij", q, k) / math.sqrt(dim)
        scores = np.where(np.tri(len(x), dtype=bool), scores, -np.inf)
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        shares /= shares.sum(-1, keepdims=True)
        mixed = np.einsum("hij,jhd->ihd", shares, v).reshape(len(x), -1)
        return self._linear("midlayer.self_attn.o_proj", mixed)

    def _rotated(self, x: F64) -> F64:
        half = x.shape[-1] // 2
        turns = self._layer["rope_theta"] ** (-np.arange(half) / half)
        angles = np.outer(np.arange(len(x)), turns)[:, None]
        first, second = x[..., :half], x[..., half:]
        cos, sin = np.cos(angles), np.sin(angles)
        return np.concatenate((first * cos - second * sin, second * cos + first * sin), axis=-1)

    def _linear(self, name: str, x: F64) -> F64:
        y: F64 = x @ self._weights[f"{name}.weight"].T
        return y

    def _norm(self, name: str, x: F64) -> F64:
        size = np.sqrt((x**2).mean(-1, keepdims=True) + self._layer["rms_norm_eps"])
        y: F64 = x / size * self._weights[f"{name}.weight"]
        return y


def naive_medusa(weights: dict[str, Any], normed: F64) -> F64:
    """[T, E], the input of the target's head, to [heads, T, V]: a residual block and a matrix."""
    found: list[F64] = []
    while f"{len(found)}.1.weight" in weights:
        block, out = f"{len(found)}.0.linear", f"{len(found)}.1.weight"
        inside = normed @ weights[f"{block}.weight"].astype(np.float64).T + weights[f"{block}.bias"]
        found.append((normed + inside / (1 + np.exp(-inside))) @ weights[out].T)
    return np.array(found)
