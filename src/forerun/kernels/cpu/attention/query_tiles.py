"""Attention of a few queries that share one key/value head, as vector IR.

Keys are taken in logical order, whatever their slots. A score has one chain of multiply-adds for
each 16 dimensions, and the results are added in order. A mixed value is one chain of multiply-adds
over the keys. So no bit depends on the other queries of a tile, on how many keys are taken
together, or on the length of a vector.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from numba import float32, int64, void

from forerun.kernels.cpu.attention.stored import emitted_bytes, load_group, prefetch_group
from forerun.kernels.cpu.codegen.emitted import emitted, outlined
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

MAX_QUERIES: Final = 24  # that go through keys and values together, of one or more tokens
MAX_SCORED: Final = 4  # queries in one tile of `score_blocks`
_MAX_MIXED: Final = 6
_MAX_MIXED_ARM: Final = 5  # 20 registers of sums, 4 of a value and 5 of weights; there are 32
_UNROLLED: Final = 4  # dimensions
_GROUP: Final = vector(F32, GROUP_LEN)
# How many groups of 16 sums fit in registers; the second number is for registers of 512 bits.
_MAX_SCORES: Final = (4, 16)
_MAX_SUMS: Final = (6, 24)


def _most(machine: Machine, limits: tuple[int, int]) -> int:
    return limits[machine.instructions.num_outputs == GROUP_LEN]


def _most_mixed(machine: Machine) -> int:
    return _MAX_MIXED_ARM if machine.instructions.is_signed else _MAX_MIXED


@emitted(int64)
def max_mixed(_b: Any) -> Value:
    """The most queries in one tile of `mix_values`."""
    return i64(_most_mixed(Machine.target()))


def for_each_width(b: Any, num_queries: Value, most: int, emit: Callable[[int], None]) -> None:
    """Emit a branch for each number of queries up to `most`."""
    done = b.append_basic_block("done")
    switch = b.switch(num_queries, done)
    for width in range(1, most + 1):
        case = b.append_basic_block(f"queries{width}")
        switch.add_case(i64(width), case)
        b.position_at_end(case)
        emit(width)
        b.branch(done)
    b.position_at_end(done)


@outlined(void, int64, int64, int64, int64, int64, int64)
def turn_queries(
    b: Any, first: Value, second: Value, third: Value, fourth: Value, num_groups: Value, out: Value
) -> None:
    """out[dimension, i] = that dimension of query i, for four queries."""
    e = Emitter(b, Machine.target())

    def turn(idx: Value, _carried: list[Value]) -> list[Value]:
        at = b.mul(idx, i64(4 * GROUP_LEN))
        rows = [e.load(b.add(row, at), _GROUP) for row in (first, third, second, fourth)]
        while len(rows) > 1:  # interleave the lanes of each pair
            pairs, count = list(zip(rows[::2], rows[1::2], strict=True)), rows[0].type.count
            order = [lane + which * count for lane in range(count) for which in (0, 1)]
            rows = [e.shuffle(*pair, order) for pair in pairs]
        e.store(rows[0], b.add(out, b.mul(at, i64(MAX_SCORED))))
        return []

    loop(b, num_groups, [], turn)


@outlined(void, int64, int64, int64, int64, int64, float32, int64, int64, int64)
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
    """out[query, 16·i …] = scale · query · the keys of block i, for blocks 0 … `last`.

    `q` is what `turn_queries` wrote; `places` and `ahead` are addresses of blocks. Those at `ahead`
    are read next: they are prefetched.
    """
    e = Emitter(b, Machine.target())

    def emit_turns(width: int, together: int) -> None:
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

        loop(b, b.sdiv(b.add(last, i64(together)), i64(together)), [], turn)

    def emit(width: int) -> None:
        most = _most(e.machine, _MAX_SCORES)
        counts = [count for count in (1, 2, 4) if count == 1 or count * width <= most]
        _choose(
            b, counts, lambda num: b.icmp_signed("<", last, i64(num)), partial(emit_turns, width)
        )

    for_each_width(b, num_queries, MAX_SCORED, emit)


def _choose(
    b: Any, counts: list[int], fits: Callable[[int], Value], emit: Callable[[int], None]
) -> None:
    """Emit a branch for each of `counts`; the first that fits is taken, else the last."""
    count, *others = counts
    if not others:
        emit(count)
        return
    with b.if_else(fits(count)) as (yes, no):
        with yes:
            emit(count)
        with no:
            _choose(b, others, fits, emit)


def _products(
    e: Emitter, q: Value, blocks: list[Value], later: list[Value], num_groups: Value, width: int
) -> list[Value]:
    """Emit the scores of every block with every query: [block · width + query]."""
    b, none = e.builder, [_GROUP([0.0] * GROUP_LEN)] * (len(blocks) * width)

    def group(idx: Value, totals: list[Value]) -> list[Value]:
        def some(step: Value, acc: list[Value]) -> list[Value]:
            first = b.add(b.mul(idx, i64(GROUP_LEN)), b.mul(step, i64(_UNROLLED)))
            at = b.mul(first, i64(emitted_bytes() * GROUP_LEN))
            mine = b.mul(first, i64(4 * MAX_SCORED))
            for dim in range(_UNROLLED):
                here = e.offset(at, emitted_bytes() * GROUP_LEN * dim)
                places = [
                    e.offset(b.add(q, mine), 4 * (dim * MAX_SCORED + i)) for i in range(width)
                ]
                parts = [e.splat(e.load(place, F32), GROUP_LEN) for place in places]
                for k, block in enumerate(blocks):
                    prefetch_group(e, b.add(later[k], at), dim)
                    key = load_group(e, b.add(block, here))
                    for i, part in enumerate(parts):
                        acc[k * width + i] = e.fma(part, key, acc[k * width + i])
            return acc

        sums = loop(b, i64(GROUP_LEN // _UNROLLED), none, some)
        return [b.fadd(total, mine) for total, mine in zip(totals, sums, strict=True)]

    return loop(b, num_groups, none, group)


@outlined(void, *[int64] * 12)
def mix_values(
    b: Any,
    weights: Value,
    weights_stride: Value,
    slots: Value,
    num_keys: Value,
    ahead: Value,
    first_ahead: Value,
    pace: Value,
    values: Value,
    stride: Value,
    num_groups: Value,
    out: Value,
    num_queries: Value,
) -> None:
    """out[query] += Σ weights[query, j] · values[slots[j]] in ascending order of j.

    Then the rows at `ahead` of the slots from `first_ahead` on are read: with each key, `pace` /
    256 of a row are prefetched.
    """
    e = Emitter(b, Machine.target())
    query_bytes = b.mul(num_groups, i64(4 * GROUP_LEN))

    def emit_turns(width: int, count: int) -> None:
        """Take `count` groups of dimensions at a time; `count` must divide their number."""

        def turn(idx: Value, _carried: list[Value]) -> list[Value]:
            at = b.mul(idx, i64(4 * GROUP_LEN * count))
            stored_at = b.mul(idx, i64(emitted_bytes() * GROUP_LEN * count))
            start = b.add(values, stored_at)

            def row(j: Value) -> Value:
                return b.mul(e.load(b.add(slots, b.mul(j, i64(8))), I64), stride)

            def key(j: Value, acc: list[Value]) -> list[Value]:
                following = b.add(first_ahead, b.ashr(b.mul(j, pace), i64(8)))
                mine, later = b.add(start, row(j)), b.add(b.add(ahead, stored_at), row(following))
                first = b.add(weights, b.mul(j, i64(4)))
                places = [b.add(first, b.mul(weights_stride, i64(i))) for i in range(width)]
                shares = [e.splat(e.load(place, F32), GROUP_LEN) for place in places]
                for g in range(count):
                    prefetch_group(e, later, g)
                    value = load_group(e, e.offset(mine, emitted_bytes() * GROUP_LEN * g))
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

    def divides(count: int) -> Value:
        return b.icmp_signed("==", b.srem(num_groups, i64(count)), i64(0))

    def emit(width: int) -> None:
        most = _most(e.machine, _MAX_SUMS)
        counts = [count for count in (4, 2, 1) if count == 1 or count * width <= most]
        _choose(b, counts, divides, partial(emit_turns, width))

    for_each_width(b, num_queries, _most_mixed(e.machine), emit)
