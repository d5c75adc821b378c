"""The operations of a pass, apart from products: each does one chunk of one step.

    operation(step, chunk, scratch)

`step` is the address of the step's fields (`program.py`), of which the first are the operation,
the number of chunks and a flag; `arg(step, i)` is the i-th field after those. `scratch` is this
thread's own memory. All addresses and strides are in bytes; rows are padded to 16 floats, with
zeros.
"""

from __future__ import annotations

import math
from typing import Any

from numba import float32, int32, int64, njit

from forerun.kernels.cpu.digits import BLOCK_LEN
from forerun.kernels.cpu.head_group import (
    KEYS_PER_TURN,
    MAX_HEADS,
    mix_values,
    score_keys,
)
from forerun.kernels.cpu.native import dot, float_of_bits, floats, int_at, ints
from forerun.kernels.cpu.scalar import exp32

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

NUM_HEADER_FIELDS = 3


@njit(inline="always")
def arg(step, idx):
    return int_at(step, idx + NUM_HEADER_FIELDS)


@njit(inline="always")
def float_arg(step, idx):
    return float_of_bits(int32(arg(step, idx)))


@njit(inline="always")
def _num_groups(length):
    return (length + 15) // 16


def add_norm(step, chunk, _scratch):
    """x += delta; h = x · weight / sqrt(mean(x²) + eps), for one row."""
    width, stride = arg(step, 0), arg(step, 1)
    row = chunk * stride
    address = arg(step, 2) + row
    x, h, weight = floats(address), floats(arg(step, 4) + row), floats(arg(step, 5))
    if arg(step, 3) != 0:
        delta = floats(arg(step, 3) + row)
        for i in range(width):
            x[i] = x[i] + delta[i]
    mean = dot(address, address, _num_groups(width)) / float32(width)
    scale = float32(1) / math.sqrt(mean + float_arg(step, 6))
    for i in range(width):
        h[i] = x[i] * scale * weight[i]


def silu_mul(step, chunk, _scratch):
    """silu(gate) · up, for one row."""
    width = arg(step, 0)
    gate = floats(arg(step, 1) + chunk * arg(step, 2))
    up = floats(arg(step, 1) + chunk * arg(step, 2) + 4 * width)
    out = floats(arg(step, 3) + chunk * arg(step, 4))
    for i in range(width):
        out[i] = gate[i] / (float32(1) + exp32(-gate[i])) * up[i]


def read(step, chunk, _scratch):
    """Add up a run of int64: how fast memory can be read."""
    num_ints = arg(step, 0)
    values = ints(arg(step, 1) + 8 * chunk * num_ints)
    total = int64(0)
    for i in range(num_ints):
        total += values[i]
    ints(arg(step, 2))[chunk] = total


def select(step, chunk, _scratch):
    """Copy one wanted row."""
    width, stride = arg(step, 0), arg(step, 1)
    source = floats(arg(step, 2) + int_at(arg(step, 3), chunk) * stride)
    target = floats(arg(step, 4) + chunk * stride)
    for i in range(width):
        target[i] = source[i]


@njit(inline="always")
def _turn(source, target, cos, sin, half, norm, eps):
    """Normalise one head where `norm` is given, then rotate it, halves paired."""
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
        y[i] = left * cos[i] - right * sin[i]
        y[i + half] = right * cos[i] + left * sin[i]


def rope_write(step, chunk, _scratch):
    """One token: rotate q into q_out, rotate k and copy v into the store's slot."""
    num_heads, num_kv_heads, head_dim = arg(step, 0), arg(step, 1), arg(step, 2)
    source = arg(step, 3) + chunk * arg(step, 4)
    q_out = arg(step, 5) + chunk * arg(step, 6)
    half, stride = head_dim // 2, 64 * _num_groups(head_dim)  # a head's bytes, padded
    slot, store_stride = int_at(arg(step, 7), chunk) * stride, arg(step, 15)
    k_out, v_out = arg(step, 8) + slot, arg(step, 9) + slot
    turn = arg(step, 10) + 4 * chunk * head_dim
    cos, sin = floats(turn), floats(turn + 4 * half)
    q_eps, k_eps = float_arg(step, 13), float_arg(step, 14)
    for head in range(num_heads):
        _turn(source, q_out + head * stride, cos, sin, half, arg(step, 11), q_eps)
        source += 4 * head_dim
    for head in range(num_kv_heads):
        _turn(source, k_out + head * store_stride, cos, sin, half, arg(step, 12), k_eps)
        source += 4 * head_dim
    for head in range(num_kv_heads):
        v, target = floats(source), floats(v_out + head * store_stride)
        for i in range(head_dim):
            target[i] = v[i]
        source += 4 * head_dim


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
    group_len, groups = num_heads // num_kv_heads, _num_groups(head_dim)
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


def make_linear(sweep: Any, max_width: int) -> Any:
    """One chunk of outputs of a product, for all rows."""

    def linear(step, chunk, _scratch):
        num_outputs, chunk_len, num_rows = arg(step, 0), arg(step, 1), arg(step, 2)
        w_stride, x_stride, y_stride = arg(step, 4), arg(step, 6), arg(step, 9)
        first = chunk * chunk_len
        is_last = chunk == int_at(step, 1) - 1  # the last chunk takes what is left over
        count = num_outputs - first if is_last else chunk_len
        w, y, bias = arg(step, 3) + first * w_stride, arg(step, 8) + 4 * first, arg(step, 10)
        row, num_tiles = int64(0), (num_rows + max_width - 1) // max_width
        for tile in range(num_tiles):  # of equal width, or one row less
            width = (num_rows - row + num_tiles - tile - 1) // (num_tiles - tile)
            x, out = arg(step, 5) + row * x_stride, y + row * y_stride
            sweep(width, count, w, w_stride, x, x_stride, arg(step, 7), out, y_stride)
            row += width
        if bias != 0:
            terms = floats(bias + 4 * first)
            for r in range(num_rows):
                totals = floats(y + r * y_stride)
                for i in range(count):
                    totals[i] = totals[i] + terms[i]

    return linear


def make_write_digits(write_record: Any, record_bytes: int) -> Any:
    """A few blocks of one row as records of digits."""

    def write_digits(step, chunk, _scratch):
        num_blocks, per_chunk = arg(step, 0), arg(step, 1)
        chunks_per_row = (num_blocks + per_chunk - 1) // per_chunk
        row, first = chunk // chunks_per_row, chunk % chunks_per_row * per_chunk
        x = arg(step, 2) + row * arg(step, 3)
        records = arg(step, 4) + row * arg(step, 5)
        for block in range(first, min(first + per_chunk, num_blocks)):
            write_record(x + 4 * BLOCK_LEN * block, records + record_bytes * block)

    return write_digits


def make_embed(expand: Any) -> Any:
    """One token's row of a table."""

    def embed(step, chunk, _scratch):
        token = int_at(arg(step, 0), chunk)
        row = arg(step, 1) + token * arg(step, 2)
        expand(row, arg(step, 3), arg(step, 4) + chunk * arg(step, 5))

    return embed
