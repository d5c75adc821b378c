"""Rotary positions: queries are turned, keys are turned and stored with their values."""

from __future__ import annotations

import math
from typing import Final

from numba import float32, njit

from forerun.kernels.cpu.codegen.native import floats, int_at, quotient
from forerun.kernels.cpu.codegen.step import arg, float_arg, num_groups

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

TOKENS_TOGETHER: Final = 16  # in a chunk


@njit(inline="always")
def _turn(source, target, apart, cos, sin, half, norm, eps):
    """Normalise one head where `norm` is given, then rotate it, halves paired.

    Numbers are written `apart` from each other.
    """
    x, y = floats(source), floats(target)
    scale = float32(1)
    if norm != 0:
        total = float32(0)
        for i in range(2 * half):
            total = total + x[i] * x[i]
        scale = float32(1) / math.sqrt(total / float32(2 * half) + eps)
    weight = floats(norm)
    for i in range(half):
        left, right = x[i], x[i + half]
        if norm != 0:
            left, right = left * scale * weight[i], right * scale * weight[i + half]
        y[apart * i] = left * cos[i] - right * sin[i]
        y[apart * (i + half)] = right * cos[i] + left * sin[i]


def rope_write(step, chunk, _scratch):
    """A key/value head of a few tokens, and the heads that ask it: rotate q into q_out, rotate k
    and copy v into the store's slots.

    Keys of a block lie in the same cache lines, so one thread writes those of tokens side by side.
    """
    num_kv_heads, head_dim, num_tokens = arg(step, 1), arg(step, 2), arg(step, 16)
    group_len, part = quotient(arg(step, 0), num_kv_heads), quotient(chunk, num_kv_heads)
    kv_head = chunk - part * num_kv_heads
    head_bytes, half, stride = 4 * head_dim, head_dim // 2, 64 * num_groups(head_dim)
    q_eps, k_eps = float_arg(step, 13), float_arg(step, 14)
    first = part * TOKENS_TOGETHER
    for token in range(first, min(first + TOKENS_TOGETHER, num_tokens)):
        source = arg(step, 3) + token * arg(step, 4)
        slot, store_head = int_at(arg(step, 7), token), kv_head * arg(step, 15)
        turn = int_at(arg(step, 10), token)
        cos, sin = floats(turn), floats(turn + 4 * half)
        for head in range(kv_head * group_len, (kv_head + 1) * group_len):
            target = arg(step, 5) + token * arg(step, 6) + head * stride
            _turn(source + head * head_bytes, target, 1, cos, sin, half, arg(step, 11), q_eps)
        source += (arg(step, 0) + kv_head) * head_bytes
        k_out = arg(step, 8) + store_head + (slot >> 4) * 16 * stride + 4 * (slot & 15)  # a lane
        _turn(source, k_out, 16, cos, sin, half, arg(step, 12), k_eps)
        v = floats(source + num_kv_heads * head_bytes)
        v_out = floats(arg(step, 9) + store_head + slot * stride)
        for i in range(head_dim):
            v_out[i] = v[i]
