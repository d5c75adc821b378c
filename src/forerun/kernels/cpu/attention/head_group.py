"""Attention of a few queries that share one key/value head, as vector IR.

Keys come one after the other in logical order, whatever slots they lie in. A score is a sum over
16 dimensions at a time, each a chain of multiply-adds, added up in order; a mixed value is one
chain of multiply-adds over the keys. So neither the queries beside it nor the number of keys
in a turn changes a bit, nor does the length of a vector.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from numba import float32, int64, void

from forerun.kernels.cpu.attention.key_blocks import BLOCKS_TOGETHER
from forerun.kernels.cpu.codegen.emitted import emitted
from forerun.kernels.cpu.codegen.lanes import (
    F32,
    GROUP_LEN,
    I64,
    Emitter,
    Value,
    i64,
    vector,
)
from forerun.kernels.cpu.codegen.loops import loop
from forerun.kernels.cpu.codegen.machine import Machine

MAX_QUERIES: Final = 12  # together, of one token or of some
_KEYS_AHEAD: Final = 48  # values are asked for so long before they are read
_UNROLLED: Final = 4  # dimensions
_GROUP: Final = vector(F32, GROUP_LEN)


def _has_long_vectors(machine: Machine) -> bool:
    return machine.instructions.num_outputs == GROUP_LEN


MAX_SCORED: Final = 12 if _has_long_vectors(Machine.host()) else 3  # queries in registers
MAX_MIXED: Final = 6
_MAX_SUMS: Final = (6, 24)  # groups of 16 in registers; the second with registers of 512 bits


def for_each_width(b: Any, num_queries: Value, most: int, emit: Callable[[int], None]) -> None:
    """A branch for each number of queries that are taken together."""
    done = b.append_basic_block("done")
    switch = b.switch(num_queries, done)
    for width in range(1, most + 1):
        case = b.append_basic_block(f"queries{width}")
        switch.add_case(i64(width), case)
        b.position_at_end(case)
        emit(width)
        b.branch(done)
    b.position_at_end(done)


@emitted(void, int64, int64, int64, int64, int64, float32, int64, int64, int64)
def score_blocks(
    b: Any,
    q: Value,
    num_groups: Value,
    places: Value,
    ahead: Value,
    last: Value,
    scale: Value,
    out: Value,
    out_stride: Value,
    num_queries: Value,
) -> None:
    """out[query, 16·i …] = scale · q[·, query] · the keys of block i, for blocks 0 … `last`.

    `ahead` are blocks that will be read next.
    """
    e = Emitter(b, Machine.host())

    def emit(width: int) -> None:
        together = max(1, BLOCKS_TOGETHER // -(-width // 3))  # enough sums to hide their latency

        def turn(idx: Value, _carried: list[Value]) -> list[Value]:
            first = b.mul(idx, i64(together))
            idxs = [e.offset(first, k) for k in range(together)]
            blocks, later = (
                [e.load(b.add(table, b.mul(at, i64(8))), I64) for at in idxs]
                for table in (places, ahead)
            )
            scores = _products(e, q, blocks, later, num_groups, width)
            for k, at in enumerate(idxs):
                column = b.select(b.icmp_signed("<", at, last), at, last)
                place = b.add(out, b.mul(column, i64(4 * GROUP_LEN)))
                for query in range(width):
                    score = b.fmul(scores[k * width + query], e.splat(scale, GROUP_LEN))
                    e.store(score, b.add(place, b.mul(out_stride, i64(query))))
            return []

        num_turns = b.sdiv(b.add(last, i64(together)), i64(together))
        loop(b, num_turns, [], turn)

    for_each_width(b, num_queries, MAX_SCORED, emit)


def _products(
    e: Emitter, q: Value, blocks: list[Value], later: list[Value], num_groups: Value, width: int
) -> list[Value]:
    """Scores of every block with every query: [block · width + query]."""
    b, none = e.builder, [_GROUP([0.0] * GROUP_LEN)] * (len(blocks) * width)

    def group(idx: Value, totals: list[Value]) -> list[Value]:
        start = b.mul(idx, i64(4 * GROUP_LEN * GROUP_LEN))

        def some(step: Value, acc: list[Value]) -> list[Value]:
            at = b.add(start, b.mul(step, i64(4 * GROUP_LEN * _UNROLLED)))
            for dim in range(_UNROLLED):
                here = e.offset(at, 4 * GROUP_LEN * dim)
                for k, block in enumerate(blocks):
                    e.prefetch(b.add(later[k], here))
                    key = e.load(b.add(block, here), _GROUP)
                    for query in range(width):
                        part = e.load(e.offset(b.add(q, here), 4 * query), F32)
                        idx = k * width + query
                        acc[idx] = e.fma(e.splat(part, GROUP_LEN), key, acc[idx])
            return acc

        sums = loop(b, i64(GROUP_LEN // _UNROLLED), none, some)
        return [b.fadd(total, mine) for total, mine in zip(totals, sums, strict=True)]

    return loop(b, num_groups, none, group)


@emitted(void, int64, int64, int64, int64, int64, int64, int64, int64, int64)
def mix_values(
    b: Any,
    weights: Value,
    weights_stride: Value,
    slots: Value,
    num_keys: Value,
    values: Value,
    stride: Value,
    num_groups: Value,
    out: Value,
    num_queries: Value,
) -> None:
    """out[query] += Σ weights[query, j] · values[slots[j]] in ascending order of j."""
    e = Emitter(b, Machine.host())
    query_bytes = b.mul(num_groups, i64(4 * GROUP_LEN))

    def emit_turns(width: int, count: int) -> None:
        """`count` groups in a turn, of which there must be a whole number."""

        def turn(idx: Value, _carried: list[Value]) -> list[Value]:
            at = b.mul(idx, i64(4 * GROUP_LEN * count))
            start = b.add(values, at)

            def row(j: Value) -> Value:
                return b.add(start, b.mul(e.load(b.add(slots, b.mul(j, i64(8))), I64), stride))

            def key(j: Value, acc: list[Value]) -> list[Value]:
                later = b.add(j, i64(_KEYS_AHEAD))
                ahead = row(b.select(b.icmp_signed("<", later, num_keys), later, j))
                first = b.add(weights, b.mul(j, i64(4)))
                places = [b.add(first, b.mul(weights_stride, i64(i))) for i in range(width)]
                shares = [e.splat(e.load(place, F32), GROUP_LEN) for place in places]
                for g in range(count):
                    e.prefetch(e.offset(ahead, 4 * GROUP_LEN * g))
                    value = e.load(e.offset(row(j), 4 * GROUP_LEN * g), _GROUP)
                    for i, share in enumerate(shares):
                        acc[g * width + i] = e.fma(share, value, acc[g * width + i])
                return acc

            mine = [b.add(out, b.add(b.mul(query_bytes, i64(i)), at)) for i in range(width)]
            places = [e.offset(query, 4 * GROUP_LEN * g) for g in range(count) for query in mine]
            mixed = loop(b, num_keys, [e.load(place, _GROUP) for place in places], key)
            for place, total in zip(places, mixed, strict=True):
                e.store(total, place)
            return []

        loop(b, b.sdiv(num_groups, i64(count)), [], turn)

    def emit_widest(width: int, counts: list[int]) -> None:
        """The first of some numbers of groups that goes into all."""
        count, *others = counts
        if not others:
            emit_turns(width, count)
            return
        fits = b.icmp_signed("==", b.srem(num_groups, i64(count)), i64(0))
        with b.if_else(fits) as (yes, no):
            with yes:
                emit_turns(width, count)
            with no:
                emit_widest(width, others)

    def emit(width: int) -> None:
        most = _MAX_SUMS[_has_long_vectors(e.machine)]
        emit_widest(width, [count for count in (4, 2, 1) if count == 1 or count * width <= most])

    for_each_width(b, num_queries, MAX_MIXED, emit)
