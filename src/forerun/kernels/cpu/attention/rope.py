"""Rotary positions: rotate the queries; rotate the keys, and store them and the values."""

from __future__ import annotations

import math
from typing import Any, Final

from numba import float32, int64, njit, void

from forerun.kernels.cpu.attention.stored import copy_number, number_bytes, store_row
from forerun.kernels.cpu.codegen.emitted import emitted
from forerun.kernels.cpu.codegen.lanes import F32, GROUP_LEN, Emitter, Value, i64, vector
from forerun.kernels.cpu.codegen.loops import loop
from forerun.kernels.cpu.codegen.machine import Machine
from forerun.kernels.cpu.codegen.native import floats, int_at, prefetch_to_write, quotient
from forerun.kernels.cpu.codegen.step import arg, float_arg, num_groups

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

TOKENS_TOGETHER: Final = 16  # tokens of a chunk
# Blocks to prefetch: tokens of one request need no more, and those of many requests would not fit.
_BLOCKS_ASKED: Final = 2


@emitted(void, int64, int64, int64, int64, int64)
def _turn_groups(b: Any, x: Value, y: Value, cos: Value, sin: Value, num_groups: Value) -> None:
    """Rotate a head as `_turn` does, without a norm; its halves consist of groups of 16."""
    e, half = Emitter(b, Machine.target()), b.mul(num_groups, i64(4 * GROUP_LEN))

    def turn(idx: Value, _carried: list[Value]) -> list[Value]:
        at = b.mul(idx, i64(4 * GROUP_LEN))
        places = [b.add(first, at) for first in (x, b.add(x, half), cos, sin)]
        left, right, c, s = (e.load(place, vector(F32, GROUP_LEN)) for place in places)
        e.store(b.fsub(b.fmul(left, c), b.fmul(right, s)), b.add(y, at))
        e.store(b.fadd(b.fmul(right, c), b.fmul(left, s)), b.add(b.add(y, half), at))
        return []

    loop(b, num_groups, [], turn)


@njit(inline="always")
def _turn(source, target, turns, half, norm, eps):
    """Normalise one head if `norm` is not 0, then rotate it, halves paired."""
    if norm == 0 and half % GROUP_LEN == 0:
        _turn_groups(source, target, turns, turns + 4 * half, half // GROUP_LEN)
        return
    x, y, cos, sin = floats(source), floats(target), floats(turns), floats(turns + 4 * half)
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
        y[i] = left * cos[i] - right * sin[i]
        y[i + half] = right * cos[i] + left * sin[i]


def rope_write(step, chunk, scratch):
    """Rotate q into q_out, and write the rotated k and v to the store's slots, for one key/value
    head and its query heads, for a few tokens.

    The keys of a block share cache lines, so one thread writes those of adjacent tokens.
    """
    num_kv_heads, head_dim, num_tokens = arg(step, 1), arg(step, 2), arg(step, 16)
    group_len, part = quotient(arg(step, 0), num_kv_heads), quotient(chunk, num_kv_heads)
    kv_head = chunk - part * num_kv_heads
    head_bytes, half, stride = 4 * head_dim, head_dim // 2, 64 * num_groups(head_dim)
    stored = number_bytes()
    row_bytes = stored * 16 * num_groups(head_dim)
    q_eps, k_eps = float_arg(step, 13), float_arg(step, 14)
    first = part * TOKENS_TOGETHER
    end, store_head = min(first + TOKENS_TOGETHER, num_tokens), kv_head * arg(step, 15)
    keys, values = arg(step, 8) + store_head, arg(step, 9) + store_head
    last, num_asked = -1, 0
    for token in range(first, end):
        slot = int_at(arg(step, 7), token)
        for at in range(0, row_bytes, 64):
            prefetch_to_write(values + slot * row_bytes + at)
        if slot >> 4 != last and num_asked < _BLOCKS_ASKED:
            last, num_asked = slot >> 4, num_asked + 1
            for at in range(0, 16 * row_bytes, 64):
                prefetch_to_write(keys + last * 16 * row_bytes + at)
    for token in range(first, end):
        source, turns = arg(step, 3) + token * arg(step, 4), int_at(arg(step, 10), token)
        for head in range(kv_head * group_len, (kv_head + 1) * group_len):
            target = arg(step, 5) + token * arg(step, 6) + head * stride
            _turn(source + head * head_bytes, target, turns, half, arg(step, 11), q_eps)
    for token in range(first, end):
        source, turns = arg(step, 3) + token * arg(step, 4), int_at(arg(step, 10), token)
        source += (arg(step, 0) + kv_head) * head_bytes
        _turn(source, scratch, turns, half, arg(step, 12), k_eps)
        slot = int_at(arg(step, 7), token)
        store_row(scratch, scratch, head_dim)
        lane = keys + (slot >> 4) * 16 * row_bytes + stored * (slot & 15)
        for i in range(head_dim):
            copy_number(scratch + stored * i, lane + stored * GROUP_LEN * i)
        store_row(source + num_kv_heads * head_bytes, values + slot * row_bytes, head_dim)
