"""The arithmetic of one token, in numpy; every function's shapes depend on that token alone."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from forerun.types import FloatArray

BLOCK_LEN: Final = 256  # B: keys per product, so few that OpenBLAS uses one thread
EXP_LIMIT: Final = 80.0  # exp stays finite in float32, and silu below -80 is zero in effect


def rms_norm(x: FloatArray, weight: FloatArray, eps: float) -> FloatArray:
    """x · weight / sqrt(mean(x²) + eps) over the last axis."""
    mean: FloatArray = np.add.reduce(x * x, axis=-1, keepdims=True) / x.shape[-1]
    y: FloatArray = x * (1 / np.sqrt(mean + eps)) * weight
    return y


def rotate(x: FloatArray, cos: FloatArray, sin: FloatArray) -> FloatArray:
    """Rotary embedding of heads [H, head_dim], first half paired with second half."""
    half = x.shape[-1] // 2
    left, right = x[:, :half], x[:, half:]  # [H, head_dim / 2]
    return np.concatenate((left * cos - right * sin, right * cos + left * sin), axis=-1)


def attend(q: FloatArray, keys: FloatArray, values: FloatArray) -> FloatArray:
    """softmax(q·k / sqrt(head_dim))·v for one query [H·head_dim] and its J keys [J, G, head_dim].

    J is a function of the token's position, and key j is always lane j mod B of block j // B;
    blocks are folded in ascending order.
    """
    num_kv_heads, head_dim = keys.shape[1:]
    heads = q.reshape(num_kv_heads, -1, head_dim) * (1 / math.sqrt(head_dim))  # [G, H/G, head_dim]
    blocks = [slice(lo, lo + BLOCK_LEN) for lo in range(0, len(keys), BLOCK_LEN)]
    scores = np.concatenate([heads @ keys[block].transpose(1, 2, 0) for block in blocks], axis=-1)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))  # [G, H/G, J]
    mixed = np.zeros_like(heads)  # [G, H/G, head_dim]
    for block in blocks:
        mixed += weights[..., block] @ values[block].transpose(1, 0, 2)
    mixed /= np.add.reduce(weights, axis=-1, keepdims=True)
    return mixed.reshape(-1)


def silu_mul(gate_up: FloatArray) -> FloatArray:
    """silu(gate) · up for [2F]."""
    half = len(gate_up) // 2
    gate, up = gate_up[:half], gate_up[half:]  # [F]
    y: FloatArray = gate / (1 + np.exp(np.minimum(-gate, EXP_LIMIT))) * up
    return y
