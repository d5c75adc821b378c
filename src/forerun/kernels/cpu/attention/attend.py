"""Attention of a few tokens, as one chunk of a step for each key/value head."""

from __future__ import annotations

import math
from typing import Final

from numba import float32, njit

from forerun.kernels.cpu.attention.head_group import (
    MAX_MIXED,
    MAX_QUERIES,
    MAX_SCORED,
    mix_values,
    score_blocks,
    turn_queries,
)
from forerun.kernels.cpu.attention.key_blocks import BLOCKS_TOGETHER, find_blocks
from forerun.kernels.cpu.attention.softmax import highest, weigh
from forerun.kernels.cpu.codegen.lanes import GROUP_LEN, padded
from forerun.kernels.cpu.codegen.native import floats, int_at
from forerun.kernels.cpu.codegen.step import arg, num_groups

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

KEY_FIELDS: Final = 5  # of a token: see `runtime/batch.py`
_PLACES_BYTES: Final = 8 * BLOCKS_TOGETHER


def tokens_together(num_heads: int, num_kv_heads: int) -> int:
    """How many may be in a chunk."""
    return max(1, MAX_QUERIES // (num_heads // num_kv_heads))


def scratch_bytes(max_keys: int, max_own: int, head_dim: int) -> int:
    """Of one thread, as `_attend` lays it out."""
    places, width = 2 * _PLACES_BYTES, 4 * padded(head_dim)
    spare, turned = 2 * BLOCKS_TOGETHER * GROUP_LEN * width, GROUP_LEN * width
    row = 4 * (padded(max_keys + MAX_QUERIES + max_own) + padded(max_own) + 4 * GROUP_LEN)
    return places + spare + turned + MAX_QUERIES * (width + row)


@njit(inline="always")
def _tile_width(num_queries, most):
    """Tiles of equal width, but for the last."""
    num_tiles = (num_queries + most - 1) // most
    return (num_queries + num_tiles - 1) // num_tiles


@njit
def _score(slots, num_keys, keys, places, q, groups, scale, out, row_bytes, num_queries):
    """Scores of the keys of some slots, by all queries; there may be 15 more on either side."""
    block_bytes, together = 1024 * groups, BLOCKS_TOGETHER * 16
    spare = places + 2 * _PLACES_BYTES
    width = _tile_width(num_queries, MAX_SCORED)
    start, is_odd = -(int_at(slots, 0) & 15), 0
    last = find_blocks(slots, start, num_keys, keys, block_bytes, places, spare)
    while start < num_keys:
        here = later = places + is_odd * _PLACES_BYTES
        following, next_last = start + together, last
        is_odd = 1 - is_odd
        if following < num_keys:
            later = places + is_odd * _PLACES_BYTES
            room = spare + is_odd * BLOCKS_TOGETHER * block_bytes
            next_last = find_blocks(slots, following, num_keys, keys, block_bytes, later, room)
        for query in range(0, num_queries, width):
            count = min(width, num_queries - query)
            target = out + query * row_bytes + 4 * start
            turned = q + query // width * (16 * MAX_SCORED) * 4 * groups
            score_blocks(turned, groups, here, later, last, scale, target, row_bytes, count)
        start, last = following, next_last


@njit
def _mix(weights, row_bytes, slots, num_keys, values, groups, out, num_queries):
    """Add the values of some slots, by the weights of all queries."""
    width, stride = _tile_width(num_queries, MAX_MIXED), 64 * groups
    if num_keys > 0:
        for query in range(0, num_queries, width):
            count = min(width, num_queries - query)
            mine, target = weights + query * row_bytes, out + query * stride
            mix_values(mine, row_bytes, slots, num_keys, values, stride, groups, target, count)


@njit
def _turn(q, q_stride, num_tokens, count, groups, target):
    """Queries as tiles of them are scored."""
    num_queries, stride = num_tokens * count, 64 * groups
    width = _tile_width(num_queries, MAX_SCORED)
    for query in range(0, num_queries, width):
        last = min(query + width, num_queries) - 1
        at = (query, min(query + 1, last), min(query + 2, last), last)
        first, second, third, fourth = (
            q + at[0] // count * q_stride + at[0] % count * stride,
            q + at[1] // count * q_stride + at[1] % count * stride,
            q + at[2] // count * q_stride + at[2] % count * stride,
            q + at[3] // count * q_stride + at[3] % count * stride,
        )
        turn_queries(first, second, third, fourth, groups, target)
        target += MAX_SCORED * stride


@njit(inline="always")
def _keys(step, token):
    """Slots that it may share with others, its first and its end in them; its own, how many."""
    place = arg(step, 7) + 8 * KEY_FIELDS * token
    return (
        int_at(place, 0),
        int_at(place, 1),
        int_at(place, 2),
        int_at(place, 3),
        int_at(place, 4),
    )


def attend(step, chunk, scratch):
    """The heads of a few tokens that share a key/value head.

    Tokens of one request read the keys that they share together.
    """
    group_len = arg(step, 0) // arg(step, 1)
    num_tokens, per_chunk = arg(step, 11), arg(step, 12)
    chunks_per_head = (num_tokens + per_chunk - 1) // per_chunk
    kv_head, token = chunk // chunks_per_head, chunk % chunks_per_head * per_chunk
    end = min(token + per_chunk, num_tokens)
    while token < end:
        stop = token + 1
        while stop < end and _keys(step, stop)[0] == _keys(step, token)[0]:
            stop += 1
        for first in range(0, group_len, MAX_QUERIES):
            count = min(MAX_QUERIES, group_len - first)
            _attend(step, kv_head, kv_head * group_len + first, count, token, stop, scratch)
        token = stop


@njit
def _attend(step, kv_head, head, count, token, stop, scratch):
    """`count` heads of tokens that share slots."""
    head_dim = arg(step, 2)
    groups, num_queries = num_groups(head_dim), count * (stop - token)
    keys, values = arg(step, 5) + kv_head * arg(step, 10), arg(step, 6) + kv_head * arg(step, 10)
    slots, first, end, _, most_own = _keys(step, token)
    last_first, first_end = first, end
    for each in range(token + 1, stop):
        _, start, stops, _, num_own = _keys(step, each)
        first, last_first = min(first, start), max(last_first, start)
        end, first_end = max(end, stops), min(first_end, stops)
        most_own = max(most_own, num_own)
    last_first, scale = min(last_first, first_end), float32(1) / math.sqrt(float32(head_dim))
    own_at = 64 * (num_groups(end - first + most_own) + 2)  # until they follow the others
    row_bytes, stride = own_at + 64 * (num_groups(most_own) + 1), 64 * groups
    turned = scratch + 2 * _PLACES_BYTES + 2 * BLOCKS_TOGETHER * 16 * stride
    mixed = turned + 16 * stride
    scores = mixed + MAX_QUERIES * stride + 64  # the first block may begin before them
    q = arg(step, 3) + token * arg(step, 4) + head * stride
    _turn(q, arg(step, 4), stop - token, count, groups, turned)
    if end > first:
        shared, num_shared = slots + 8 * first, end - first
        _score(
            shared, num_shared, keys, scratch, turned, groups, scale, scores, row_bytes, num_queries
        )
    for i in range(num_queries * groups * 16):
        floats(mixed)[i] = float32(0)
    for each in range(token, stop):
        _, start, stops, own, num_own = _keys(step, each)
        idx = (each - token) * count
        row = scores + idx * row_bytes
        if num_own > 0:
            _turn(q + (each - token) * arg(step, 4), 0, 1, count, groups, turned)
            out = row + own_at
            _score(own, num_own, keys, scratch, turned, groups, scale, out, row_bytes, count)
        for h in range(count):
            score, late = floats(row + 4 * (stops - first)), floats(row + own_at)
            for i in range(num_own):
                score[i] = late[i]
            mine = row + 4 * (start - first)
            floats(scratch)[idx + h] = highest(mine, stops - start + num_own)
            row += row_bytes
    for query in range(num_queries):
        _, start, stops, _, num_own = _keys(step, token + query // count)
        mine, most = scores + query * row_bytes + 4 * (start - first), floats(scratch)[query]
        floats(scratch)[query] = weigh(mine, stops - start + num_own, most)
    for each in range(token, stop):
        start, idx = _keys(step, each)[1], (each - token) * count
        mine, out = scores + idx * row_bytes + 4 * (start - first), mixed + idx * stride
        _mix(mine, row_bytes, slots + 8 * start, last_first - start, values, groups, out, count)
    mine, shared = scores + 4 * (last_first - first), slots + 8 * last_first
    _mix(mine, row_bytes, shared, first_end - last_first, values, groups, mixed, num_queries)
    for each in range(token, stop):
        _, _, stops, own, num_own = _keys(step, each)
        idx = (each - token) * count
        row, out = scores + idx * row_bytes, mixed + idx * stride
        mine, shared = row + 4 * (first_end - first), slots + 8 * first_end
        _mix(mine, row_bytes, shared, stops - first_end, values, groups, out, count)
        mine = row + 4 * (stops - first)
        _mix(mine, row_bytes, own, num_own, values, groups, out, count)
        target = floats(arg(step, 8) + each * arg(step, 9) + 4 * head * head_dim)
        for h in range(count):
            total, x = floats(scratch)[idx + h], floats(out + h * stride)
            for i in range(head_dim):
                target[h * head_dim + i] = x[i] / total
