"""Attention of one token, as one chunk of a step for each key/value head."""

from __future__ import annotations

import math

from numba import float32, njit

from forerun.kernels.cpu.attention.head_group import (
    KEYS_PER_TURN,
    MAX_HEADS,
    mix_values,
    score_keys,
)
from forerun.kernels.cpu.codegen.native import floats, int_at
from forerun.kernels.cpu.codegen.scalar import exp32
from forerun.kernels.cpu.codegen.step import arg, num_groups

# mypy: disable-error-code="no-untyped-def, untyped-decorator"


@njit(inline="always")
def _highest(values, count):
    a = b = c = d = float32(-math.inf)
    whole = count // 4 * 4
    for j in range(0, whole, 4):
        a = values[j] if values[j] > a else a
        b = values[j + 1] if values[j + 1] > b else b
        c = values[j + 2] if values[j + 2] > c else c
        d = values[j + 3] if values[j + 3] > d else d
    for j in range(whole, count):
        a = values[j] if values[j] > a else a
    return max(max(a, b), max(c, d))


@njit(inline="always")
def _total(values, count):
    """Value j goes to partial sum j mod 4."""
    a = b = c = d = float32(0)
    whole = count // 4 * 4
    for j in range(0, whole, 4):
        a, b = a + values[j], b + values[j + 1]
        c, d = c + values[j + 2], d + values[j + 3]
    a = a + values[whole] if count > whole else a
    b = b + values[whole + 1] if count > whole + 1 else b
    c = c + values[whole + 2] if count > whole + 2 else c
    return (a + b) + (c + d)


@njit(inline="always")
def _softmax(weights, num_keys):
    """Scores to exp(score − highest) in place; returns their sum."""
    highest = _highest(weights, num_keys)
    for j in range(num_keys):
        weights[j] = exp32(weights[j] - highest)
    return _total(weights, num_keys)


def attend(step, chunk, scratch):
    """The heads of one token that share a key/value head, a few at a time."""
    num_heads, num_kv_heads, head_dim = arg(step, 0), arg(step, 1), arg(step, 2)
    group_len, groups = num_heads // num_kv_heads, num_groups(head_dim)
    num_tokens = int_at(step, 1) // num_kv_heads
    kv_head, token = chunk // num_tokens, chunk % num_tokens  # neighbours read the same keys
    keys, values = arg(step, 5) + kv_head * arg(step, 10), arg(step, 6) + kv_head * arg(step, 10)
    stride = 64 * groups
    slots, num_keys = int_at(arg(step, 7), 2 * token), int_at(arg(step, 7), 2 * token + 1)
    row_bytes = 4 * (num_keys + KEYS_PER_TURN)
    mixed = scratch + MAX_HEADS * row_bytes
    scale = float32(1) / math.sqrt(float32(head_dim))
    for first in range(0, group_len, MAX_HEADS):
        count = min(MAX_HEADS, group_len - first)
        head = kv_head * group_len + first
        q = arg(step, 3) + token * arg(step, 4) + head * 64 * groups
        score_keys(q, groups, keys, stride, slots, num_keys, scale, scratch, row_bytes, count)
        out = floats(arg(step, 8) + token * arg(step, 9) + 4 * head * head_dim)
        totals = floats(mixed)
        for h in range(count):
            totals[h] = _softmax(floats(scratch + h * row_bytes), num_keys)
        sums = mixed + 4 * MAX_HEADS
        mix_values(scratch, row_bytes, slots, num_keys, values, stride, groups, sums, count)
        for h in range(count):
            for i in range(head_dim):
                out[h * head_dim + i] = floats(sums)[h * groups * 16 + i] / totals[h]
