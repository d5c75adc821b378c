"""Rotary positions: queries are turned, keys are turned and stored with their values."""

from __future__ import annotations

import math

from numba import float32, njit

from forerun.kernels.cpu.codegen.native import floats, int_at
from forerun.kernels.cpu.codegen.step import arg, float_arg, num_groups

# mypy: disable-error-code="no-untyped-def, untyped-decorator"


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
    """One token: rotate q into q_out, rotate k and copy v into the store's slot."""
    num_heads, num_kv_heads, head_dim = arg(step, 0), arg(step, 1), arg(step, 2)
    source = arg(step, 3) + chunk * arg(step, 4)
    q_out = arg(step, 5) + chunk * arg(step, 6)
    half, stride = head_dim // 2, 64 * num_groups(head_dim)  # a head's bytes, padded
    slot, store_stride = int_at(arg(step, 7), chunk), arg(step, 15)
    k_out = arg(step, 8) + (slot >> 4) * 16 * stride + 4 * (slot & 15)  # a lane of its block
    v_out = arg(step, 9) + slot * stride
    turn = int_at(arg(step, 16), 0) + 4 * head_dim * int_at(arg(step, 10), chunk)
    cos, sin = floats(turn), floats(turn + 4 * half)
    q_eps, k_eps = float_arg(step, 13), float_arg(step, 14)
    for head in range(num_heads):
        _turn(source, q_out + head * stride, 1, cos, sin, half, arg(step, 11), q_eps)
        source += 4 * head_dim
    for head in range(num_kv_heads):
        _turn(source, k_out + head * store_stride, 16, cos, sin, half, arg(step, 12), k_eps)
        source += 4 * head_dim
    for head in range(num_kv_heads):
        v, target = floats(source), floats(v_out + head * store_stride)
        for i in range(head_dim):
            target[i] = v[i]
        source += 4 * head_dim
