"""Attention of a few query heads that share one key/value head, as vector IR.

Keys come one after the other in logical order, whatever slots they lie in. A score is one product
in `num_lanes` partial sums; a mixed value is one chain of multiply-adds over the keys. So neither
the heads beside it nor the number of keys in a turn changes a bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from numba import float32, int64, void

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

MAX_HEADS: Final = 4  # together; more are taken in turns
KEYS_PER_TURN: Final = 4
KEYS_TOGETHER: Final = 64  # with which tokens take turns: their rows stay in the nearest cache
MAX_TOKENS: Final = 4  # that take turns
_TURNS_AHEAD: Final = 2  # rows are asked for so long before they are read
_KEYS_AHEAD: Final = 16
_MAX_SUMS: Final = (6, 16)  # groups of 16 in registers; the second with registers of 512 bits
_GROUP: Final = vector(F32, GROUP_LEN)


def for_each_width(b: Any, num_heads: Value, emit: Callable[[int], None]) -> None:
    """A branch for each number of heads that are taken together."""
    done = b.append_basic_block("done")
    switch = b.switch(num_heads, done)
    for width in range(1, MAX_HEADS + 1):
        case = b.append_basic_block(f"heads{width}")
        switch.add_case(i64(width), case)
        b.position_at_end(case)
        emit(width)
        b.branch(done)
    b.position_at_end(done)


@emitted(void, int64, int64, int64, int64, int64, int64, float32, int64, int64, int64)
def score_keys(
    b: Any,
    q: Value,
    num_groups: Value,
    keys: Value,
    stride: Value,
    slots: Value,
    num_keys: Value,
    scale: Value,
    out: Value,
    out_stride: Value,
    num_heads: Value,
) -> None:
    """out[head, j] = scale · q[head] · keys[slots[j]], and for up to three j past the last key."""
    e = Emitter(b, Machine.host())
    last = b.sub(num_keys, i64(1))

    def row(j: Value) -> Value:
        j = b.select(b.icmp_signed("<", j, last), j, last)
        return b.add(keys, b.mul(e.load(b.add(slots, b.mul(j, i64(8))), I64), stride))

    def emit(width: int) -> None:
        def turn(idx: Value, _carried: list[Value]) -> list[Value]:
            first = b.mul(idx, i64(KEYS_PER_TURN))
            rows, ahead = (
                [row(b.add(first, i64(start + i))) for i in range(KEYS_PER_TURN)]
                for start in (0, KEYS_PER_TURN * _TURNS_AHEAD)
            )
            totals = _products(e, q, rows, ahead, num_groups, width)
            per_fold = max(1, e.machine.num_lanes // KEYS_PER_TURN)  # heads
            for start in range(0, width, per_fold):
                heads = range(start, min(start + per_fold, width))
                scores = e.fold_each([total for head in heads for total in totals[head::width]])
                scores = b.fmul(scores, e.splat(scale, scores.type.count))
                for at, head in enumerate(heads):
                    place = b.add(b.add(out, b.mul(out_stride, i64(head))), b.mul(first, i64(4)))
                    e.store(e.part(scores, KEYS_PER_TURN * at, KEYS_PER_TURN), place)
            return []

        loop(b, b.sdiv(b.add(num_keys, i64(KEYS_PER_TURN - 1)), i64(KEYS_PER_TURN)), [], turn)

    for_each_width(b, num_heads, emit)


def _products(
    e: Emitter, q: Value, rows: list[Value], ahead: list[Value], num_groups: Value, width: int
) -> list[Value]:
    """Partial sums of every row with every head: [row · width + head]."""
    b, num_lanes = e.builder, e.machine.num_lanes
    head_bytes = b.mul(num_groups, i64(4 * GROUP_LEN))
    heads = [b.add(q, b.mul(head_bytes, i64(head))) for head in range(width)]

    def body(idx: Value, acc: list[Value]) -> list[Value]:
        group = b.mul(idx, i64(4 * GROUP_LEN))
        for row in ahead:
            e.prefetch(b.add(row, group))
        for lane in range(0, GROUP_LEN, num_lanes):
            at = e.offset(group, 4 * lane)
            queries = [e.load(b.add(head, at), e.lanes) for head in heads]
            for r, row in enumerate(rows):
                key = e.load(b.add(row, at), e.lanes)
                for h, query in enumerate(queries):
                    acc[r * width + h] = e.fma(query, key, acc[r * width + h])
        return acc

    return loop(b, num_groups, [e.lanes([0.0] * num_lanes)] * (len(rows) * width), body)


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
    num_heads: Value,
) -> None:
    """out[head] += Σ weights[head, j] · values[slots[j]] in ascending order of j."""
    e = Emitter(b, Machine.host())
    head_bytes = b.mul(num_groups, i64(4 * GROUP_LEN))

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
                places = [b.add(first, b.mul(weights_stride, i64(h))) for h in range(width)]
                shares = [e.splat(e.load(place, F32), GROUP_LEN) for place in places]
                for g in range(count):
                    e.prefetch(e.offset(ahead, 4 * GROUP_LEN * g))
                    value = e.load(e.offset(row(j), 4 * GROUP_LEN * g), _GROUP)
                    for h, share in enumerate(shares):
                        acc[g * width + h] = e.fma(share, value, acc[g * width + h])
                return acc

            heads = [b.add(out, b.add(b.mul(head_bytes, i64(h)), at)) for h in range(width)]
            places = [e.offset(head, 4 * GROUP_LEN * g) for g in range(count) for head in heads]
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
        most = _MAX_SUMS[e.machine.instructions.num_outputs == 16]
        emit_widest(width, [count for count in (4, 2, 1) if count == 1 or count * width <= most])

    for_each_width(b, num_heads, emit)
