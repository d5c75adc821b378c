"""Attention. A chunk of the step is one key/value head for a few tokens.

Tokens of one request go through the keys and values that they share together.
"""

from __future__ import annotations

import math
from typing import Any, Final

from numba import float32, int64, njit

from forerun.kernels.cpu.attention.key_blocks import BLOCKS_TOGETHER, find_blocks
from forerun.kernels.cpu.attention.query_tiles import (
    MAX_QUERIES,
    MAX_SCORED,
    max_mixed,
    mix_values,
    score_blocks,
    turn_queries,
)
from forerun.kernels.cpu.attention.softmax import highest, weigh
from forerun.kernels.cpu.attention.stored import number_bytes
from forerun.kernels.cpu.codegen.emitted import emitted
from forerun.kernels.cpu.codegen.lanes import GROUP_LEN, I64, Value, i64, padded
from forerun.kernels.cpu.codegen.machine import Machine
from forerun.kernels.cpu.codegen.native import (
    emit_num_parts,
    floats,
    int_at,
    ints,
    num_parts,
    prefetch,
    prefetch_to_write,
    quotient,
)
from forerun.kernels.cpu.codegen.step import arg, num_groups
from forerun.kernels.cpu.products.digits import BLOCK_LEN, make_write_blocks

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

KEY_FIELDS: Final = 4  # per token: see `runtime/batch.py`
_PLACES_BYTES: Final = 8 * BLOCKS_TOGETHER
_SHARES_AT: Final = 3 * _PLACES_BYTES
_SPARE_AT: Final = _SHARES_AT + 4 * MAX_QUERIES
_VALUES_TOGETHER: Final = 64
# How many queries' arithmetic takes as long as reading the keys and values. With vectors of four
# floats (narrow) most of the reading overlaps with arithmetic.
_READING, _READING_NARROW = 10.0, 0.5


def tokens_per_chunk(
    num_tokens: int,
    num_heads: int,
    num_kv_heads: int,
    num_threads: int,
    *,
    is_shared: bool,
    is_narrow: bool,
) -> int:
    """Return how many tokens a chunk has, so that the last thread ends soonest, with few chunks.

    If tokens share keys and values (`is_shared`), every further chunk reads these once more; else
    chunks only divide the work, and each thread gets two. `is_narrow`: vectors have four floats.
    """
    group_len, reading = num_heads // num_kv_heads, _READING_NARROW if is_narrow else _READING
    most = min(num_tokens, max(1, MAX_QUERIES // group_len))
    if not is_shared:
        share = max(1, num_tokens * num_kv_heads // (2 * num_threads))
        return _even(num_tokens, min(most, share))

    def taken(per_chunk: int) -> tuple[float, int]:
        num_chunks = num_kv_heads * -(-num_tokens // per_chunk)
        of_each = reading + per_chunk * group_len
        return -(-num_chunks // num_threads) * of_each, num_chunks

    return min(range(1, most + 1), key=taken)


def _even(num: int, most: int) -> int:
    """Return the length of equal parts of up to `most`; the last part may be shorter."""
    return -(-num // -(-num // most))


def scratch_bytes(max_keys: int, max_own: int, head_dim: int) -> int:
    """Return a thread's scratch: places and shares, spare blocks, queries, mixed values, scores."""
    width = 4 * padded(head_dim)
    row = 4 * (padded(max_keys + max_own) + padded(max_own) + 4 * GROUP_LEN)
    return _SPARE_AT + 2 * BLOCKS_TOGETHER * GROUP_LEN * width + MAX_QUERIES * (2 * width + row)


def make_attend(machine: Machine) -> Any:
    """Make the operation of attention, which writes its results as records of digits, too, if the
    step has an address for them."""
    write_blocks = make_write_blocks(machine)

    def attend_digits(step, chunk, scratch):
        kv_head, start, end = _share(step, chunk)
        head_dim, out, stride, records = arg(step, 2), arg(step, 8), arg(step, 9), arg(step, 13)
        width = head_dim * quotient(arg(step, 0), arg(step, 1))  # floats of a token
        for token in range(start, end):
            for at in range(0, 4 * width, 64):
                prefetch_to_write(out + token * stride + 4 * kv_head * width + at)
        _attend(step, chunk, scratch)
        if records != 0:
            count = quotient(width, BLOCK_LEN)
            first, num_blocks = kv_head * count, quotient(arg(step, 0) * head_dim, BLOCK_LEN)
            for token in range(start, end):
                x = out + token * stride
                write_blocks(x, token, first, first + count, num_blocks, records, arg(step, 14))

    return attend_digits


@njit(inline="always")
def _share(step, chunk):
    """Return a chunk's key/value head, first token and end token; the end is exclusive."""
    per_chunk = arg(step, 12)
    chunks_per_head = num_parts(arg(step, 11), per_chunk)
    kv_head = quotient(chunk, chunks_per_head)
    start = (chunk - kv_head * chunks_per_head) * per_chunk
    return kv_head, start, min(start + per_chunk, arg(step, 11))


@njit(inline="always")
def _attend(step, chunk, scratch):
    """Attention of a chunk's tokens, for the query heads of its key/value head."""
    num_kv_heads, head_dim, fields = arg(step, 1), arg(step, 2), arg(step, 7)
    kv_head, start, end = _share(step, chunk)
    group_len = quotient(arg(step, 0), num_kv_heads)
    q_stride, head_bytes, per_turn = arg(step, 4), arg(step, 10), min(MAX_QUERIES, group_len)
    scale = float32(1) / math.sqrt(float32(head_dim))
    num_turns = num_parts(group_len, per_turn)
    token, stop, turn = start, start, num_turns
    while True:
        if turn == num_turns:  # go on to the next tokens that share slots
            token, turn = stop, 0
            if token == end:
                break
            stop += 1
            while stop < end and _field(fields, stop, 0) == _field(fields, token, 0):
                stop += 1
        first = turn * per_turn
        head, count = kv_head * group_len + first, min(per_turn, group_len - first)
        num_tokens, turn = stop - token, turn + 1
        groups, num_queries = num_groups(head_dim), count * num_tokens
        keys, values = arg(step, 5) + kv_head * head_bytes, arg(step, 6) + kv_head * head_bytes
        slots, most, least, most_own = _field(fields, token, 0), 0, 1 << 62, 0
        for each in range(token, stop):
            num_shared = _field(fields, each, 1)
            most, least = max(most, num_shared), min(least, num_shared)
            most_own = max(most_own, _field(fields, each, 3))
        # A token's own scores are at `own_at` until they are moved behind its shared ones.
        stride, own_at = 64 * groups, 64 * (num_groups(most + most_own) + 2)
        row_bytes = own_at + 64 * (num_groups(most_own) + 1)
        stored_bytes = 16 * number_bytes() * groups  # bytes of a stored key or value
        turned = scratch + _SPARE_AT + 2 * BLOCKS_TOGETHER * 16 * stride
        mixed = turned + MAX_QUERIES * stride
        scores = mixed + MAX_QUERIES * stride + 64  # the first block may begin before the first key
        q, shares = arg(step, 3) + token * q_stride + head * stride, floats(scratch + _SHARES_AT)

        for part in range(1 + num_tokens):  # the shared keys, then each token's own
            mine, num_keys, num, x, out = slots, most, num_queries, q, scores
            if part > 0:
                idx, num = part - 1, count
                mine, num_keys = _field(fields, token + idx, 2), _field(fields, token + idx, 3)
                x, out = q + idx * q_stride, scores + idx * count * row_bytes + own_at
            if num_keys > 0:
                _turn(x, q_stride, num, count, groups, turned)
                _score(mine, num_keys, keys, scratch, turned, groups, scale, out, row_bytes, num)
        row, query = scores, 0
        for each in range(token, stop):
            num_shared, num_own = _field(fields, each, 1), _field(fields, each, 3)
            for _ in range(count):
                score, own = floats(row + 4 * num_shared), floats(row + own_at)
                for i in range(num_own):
                    score[i] = own[i]
                shares[query] = highest(row, num_shared + num_own)
                row, query = row + row_bytes, query + 1
        num_soon, asked, row, query = min(least, _VALUES_TOGETHER), 0, scores, 0
        soon = num_parts(num_soon, num_queries)  # with each query, a part of them is prefetched
        for each in range(token, stop):
            num_keys = _field(fields, each, 1) + _field(fields, each, 3)
            for _ in range(count):
                for idx in range(asked, min(asked + soon, num_soon)):
                    for line in range((stored_bytes + 63) >> 6):
                        prefetch(values + int_at(slots, idx) * stored_bytes + 64 * line)
                shares[query] = float32(1) / weigh(row, num_keys, shares[query])
                row, asked, query = row + row_bytes, asked + soon, query + 1
        for i in range(num_queries * groups * 16):
            floats(mixed)[i] = float32(0)
        next_head = keys + head_bytes if kv_head + 1 < num_kv_heads else values
        # The values that all tokens share; then, per token, the rest of its shared ones, its own.
        for part in range(1 + 2 * num_tokens):
            mine, begin, num_keys, num, idx, ahead = slots, 0, least, num_queries, 0, next_head
            if part > 0:
                idx = (part - 1) >> 1
                num_shared, num, ahead = _field(fields, token + idx, 1), count, values
                if part & 1:
                    mine, begin, num_keys = slots + 8 * least, least, num_shared - least
                else:
                    mine, begin = _field(fields, token + idx, 2), num_shared
                    num_keys = _field(fields, token + idx, 3)
            weights = scores + idx * count * row_bytes + 4 * begin
            out = mixed + idx * count * stride
            if num_keys > 0:
                _mix(weights, row_bytes, mine, num_keys, values, ahead, groups, out, num)
        query, row, x = 0, arg(step, 8) + token * arg(step, 9) + 4 * head * head_dim, mixed
        for _ in range(num_tokens):
            for i in range(count):
                source, out, share = floats(x), floats(row + 4 * i * head_dim), shares[query]
                for dim in range(head_dim):
                    out[dim] = source[dim] * share
                x, query = x + stride, query + 1
            row += arg(step, 9)


@emitted(int64, int64, int64, int64)
def _field(b: Any, fields: Value, token: Value, idx: Value) -> Value:
    """Return a field of a token: the address of its shared slots, their number, the address of its
    own slots, their number."""
    place = b.add(b.mul(token, i64(KEY_FIELDS)), idx)
    return b.load(b.gep(b.inttoptr(fields, I64.as_pointer()), [place]))


@emitted(int64, int64, int64)
def _shared(b: Any, num: Value, most: Value) -> Value:
    """Return the length of equal parts of up to `most`; the last part may be shorter."""
    return emit_num_parts(b, num, emit_num_parts(b, num, most))


@njit(inline="always")
def _turn(q, q_stride, num_queries, count, groups, target):
    """Transpose the queries, tile by tile, into the layout that `score_blocks` reads."""
    width, stride = _shared(num_queries, MAX_SCORED), 64 * groups
    row, head = q, 0  # the next query's
    for query in range(0, num_queries, width):
        last, places = min(width, num_queries - query) - 1, ints(target)
        for i in range(MAX_SCORED):
            places[i] = row + head * stride
            if i < last:
                head += 1
                if head == count:
                    row, head = row + q_stride, 0
        turn_queries(places[0], places[1], places[2], places[3], groups, target)
        target += MAX_SCORED * stride
        head += 1
        if head == count:
            row, head = row + q_stride, 0


@njit(inline="always")
def _score(slots, num_keys, keys, places, q, groups, scale, out, row_bytes, num_queries):
    """Score the keys of some slots against all queries. Up to 15 more scores are written on either
    side, where blocks begin before the first key or end after the last.

    The next blocks are looked up before the present ones are scored, to prefetch them meanwhile.
    """
    block_bytes, together = 256 * number_bytes() * groups, BLOCKS_TOGETHER * 16
    ahead, spare = places + 2 * _PLACES_BYTES, places + _SPARE_AT
    width = _shared(num_queries, MAX_SCORED)
    num_tiles = num_parts(num_queries, width)
    start, last, side = -(int_at(slots, 0) & 15) - together, -1, 0
    while start < num_keys:
        here, following, next_last = places + (1 - side) * _PLACES_BYTES, start + together, -1
        later = here
        if following < num_keys:
            later, room = (
                places + side * _PLACES_BYTES,
                spare + side * BLOCKS_TOGETHER * block_bytes,
            )
            next_last = find_blocks(slots, following, num_keys, keys, block_bytes, later, room)
        for tile in range(num_tiles if last >= 0 else 0):
            mine = tile  # each tile prefetches a part of the next blocks
            for idx in range(BLOCKS_TOGETHER):
                asked = later if idx == mine else here
                mine += num_tiles if idx == mine else 0
                ints(ahead)[idx] = int_at(asked, idx)
            query, turned = tile * width, q + tile * MAX_SCORED * 64 * groups
            count, target = min(width, num_queries - query), out + query * row_bytes + 4 * start
            score_blocks(turned, groups, here, ahead, last, scale, target, row_bytes, count)
        start, last, side = following, next_last, 1 - side


@njit(inline="always")
def _mix(weights, row_bytes, slots, num_keys, values, ahead, groups, out, num_queries):
    """Add the values of some slots, weighted, to the sums of all queries, a few values at a time.

    After them, the rows of the same slots at `ahead` are read: these are prefetched.
    """
    width, stride = _shared(num_queries, max_mixed()), 64 * groups
    stored_bytes = 16 * number_bytes() * groups
    num_tiles = num_parts(num_queries, width)
    for start in range(0, num_keys, _VALUES_TOGETHER):
        mine, count = slots + 8 * start, min(_VALUES_TOGETHER, num_keys - start)
        num_ahead, first_ahead, later = num_keys - start - count, count, values
        if num_ahead == 0:
            num_ahead, first_ahead, later = num_keys, -start, ahead
        pace = quotient(min(_VALUES_TOGETHER, num_ahead) * 256, count * num_tiles)
        for tile in range(num_tiles):
            query, asked = tile * width, first_ahead + (pace * count * tile >> 8)
            mix_values(
                weights + query * row_bytes + 4 * start,
                row_bytes,
                mine,
                count,
                later,
                asked,
                pace,
                values,
                stored_bytes,
                groups,
                out + query * stride,
                min(width, num_queries - query),
            )
