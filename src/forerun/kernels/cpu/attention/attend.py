"""Attention of a few tokens, as one chunk of a step for each key/value head."""

from __future__ import annotations

import math

from numba import float32, int64, njit

from forerun.kernels.cpu.attention.head_group import (
    KEYS_TOGETHER,
    MAX_HEADS,
    mix_values,
    score_keys,
)
from forerun.kernels.cpu.attention.softmax import weigh
from forerun.kernels.cpu.codegen.native import floats, int_at
from forerun.kernels.cpu.codegen.step import arg, num_groups

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

_ANY = 1 << 62  # keys


@njit(inline="always")
def _keys(step, token, start, most):
    """Of a token's keys from `start` on: where their slots lie, and how many they are."""
    slots, num_keys = int_at(arg(step, 7), 2 * token), int_at(arg(step, 7), 2 * token + 1)
    return slots + 8 * start, min(most, num_keys - start)


@njit(inline="always")
def _weigh(step, token, scores, row_bytes, count, groups):
    """Scores to weights; behind them lie their sums, and mixed values, which are none yet."""
    sums = scores + MAX_HEADS * row_bytes
    mixed = floats(sums + 4 * MAX_HEADS)
    weigh(scores, row_bytes, _keys(step, token, 0, _ANY)[1], sums, count)
    for i in range(count * groups * 16):
        mixed[i] = float32(0)


@njit(inline="always")
def _write(step, token, head, scores, row_bytes, count, groups):
    head_dim, sums = arg(step, 2), floats(scores + MAX_HEADS * row_bytes)
    out = floats(arg(step, 8) + token * arg(step, 9) + 4 * head * head_dim)
    for h in range(count):
        for i in range(head_dim):
            out[h * head_dim + i] = sums[MAX_HEADS + h * groups * 16 + i] / sums[h]


def attend(step, chunk, scratch):
    """The heads of a few tokens that share a key/value head, a few at a time.

    Tokens beside each other see nearly the same keys, so they take turns with some keys.
    """
    num_heads, num_kv_heads, head_dim = arg(step, 0), arg(step, 1), arg(step, 2)
    group_len, groups = num_heads // num_kv_heads, num_groups(head_dim)
    num_tokens, per_chunk = arg(step, 11), arg(step, 12)
    chunks_per_head = (num_tokens + per_chunk - 1) // per_chunk
    kv_head, first_token = chunk // chunks_per_head, chunk % chunks_per_head * per_chunk
    tokens = range(first_token, min(first_token + per_chunk, num_tokens))
    keys, values = arg(step, 5) + kv_head * arg(step, 10), arg(step, 6) + kv_head * arg(step, 10)
    stride, longest = 64 * groups, int64(0)
    for token in tokens:
        longest = max(longest, _keys(step, token, 0, _ANY)[1])
    turn = KEYS_TOGETHER if len(tokens) > 1 else longest
    row_bytes = 64 * num_groups(longest)
    token_bytes = MAX_HEADS * (row_bytes + 4 + stride)  # scores, their sums, mixed values
    mixed_at = MAX_HEADS * (row_bytes + 4)
    scale = float32(1) / math.sqrt(float32(head_dim))
    for first in range(0, group_len, MAX_HEADS):
        count = min(MAX_HEADS, group_len - first)
        head = kv_head * group_len + first
        for start in range(0, longest, turn):
            for token in tokens:
                slots, num_keys = _keys(step, token, start, turn)
                if num_keys > 0:
                    q = arg(step, 3) + token * arg(step, 4) + head * stride
                    out = scratch + (token - first_token) * token_bytes + 4 * start
                    score_keys(
                        q, groups, keys, stride, slots, num_keys, scale, out, row_bytes, count
                    )
        for token in tokens:
            mine = scratch + (token - first_token) * token_bytes
            _weigh(step, token, mine, row_bytes, count, groups)
        for start in range(0, longest, turn):
            for token in tokens:
                slots, num_keys = _keys(step, token, start, turn)
                if num_keys > 0:
                    mine = scratch + (token - first_token) * token_bytes
                    weights, out = mine + 4 * start, mine + mixed_at
                    mix_values(
                        weights, row_bytes, slots, num_keys, values, stride, groups, out, count
                    )
        for token in tokens:
            mine = scratch + (token - first_token) * token_bytes
            _write(step, token, head, mine, row_bytes, count, groups)
