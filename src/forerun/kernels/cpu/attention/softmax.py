"""Softmax of one query, as vector IR: the weights e^(score − highest), and their sum.

Weight j goes to partial sum j mod 16; the partial sums are folded in halves.
"""

from __future__ import annotations

from typing import Any, Final

from numba import float32, int64

from forerun.kernels.cpu.codegen.emitted import outlined
from forerun.kernels.cpu.codegen.lanes import (
    F32,
    GROUP_LEN,
    I32,
    Emitter,
    Value,
    constant,
    i64,
    vector,
)
from forerun.kernels.cpu.codegen.loops import loop, when
from forerun.kernels.cpu.codegen.machine import Machine
from forerun.kernels.cpu.codegen.scalar import emit_exp

_LOWEST: Final = -3.4028234663852886e38  # of float32
_GROUP: Final = vector(F32, GROUP_LEN)


@outlined(float32, int64, int64)
def highest(b: Any, scores: Value, num_keys: Value) -> Value:
    """Return the highest of scores[j]."""
    e = Emitter(b, Machine.target())
    last = b.sdiv(b.sub(num_keys, i64(1)), i64(GROUP_LEN))
    lowest = constant(F32, [_LOWEST] * GROUP_LEN)

    def larger(left: Value, right: Value) -> Value:
        """NaN is never larger."""
        return b.select(b.fcmp_ordered(">", left, right), left, right)

    def found(idx: Value) -> Value:
        return e.load(b.add(scores, b.mul(idx, i64(4 * GROUP_LEN))), _GROUP)

    def compare(idx: Value, most: list[Value]) -> list[Value]:
        return [larger(found(idx), most[0])]

    most = [b.select(_is_key(e, last, num_keys), found(last), lowest)]
    most = [larger(most[0], lowest)]
    is_more = b.icmp_signed(">", last, i64(0))
    most = when(b, is_more, most, lambda before: loop(b, last, before, compare))
    return b.extract_element(e.fold_each(most, larger), I32(0))


@outlined(float32, int64, int64, float32)
def weigh(b: Any, scores: Value, num_keys: Value, most: Value) -> Value:
    """Replace scores[j] by weights, padded with zeros to groups of 16, and return their sum."""
    e = Emitter(b, Machine.target())
    num_groups = b.sdiv(b.add(num_keys, i64(GROUP_LEN - 1)), i64(GROUP_LEN))
    most, none = e.splat(most, GROUP_LEN), constant(F32, [0.0] * GROUP_LEN)

    def add(idx: Value, totals: list[Value]) -> list[Value]:
        place = b.add(scores, b.mul(idx, i64(4 * GROUP_LEN)))
        weight = emit_exp(e, b.fsub(e.load(place, _GROUP), most))
        weight = b.select(_is_key(e, idx, num_keys), weight, none)
        e.store(weight, place)
        return [b.fadd(totals[0], weight)]

    return e.fold(loop(b, num_groups, [none], add)[0])


def _is_key(e: Emitter, idx: Value, num_keys: Value) -> Value:
    """Return a mask of the lanes of group `idx` that have a key."""
    b, lanes = e.builder, constant(I32, list(range(GROUP_LEN)))
    left = b.trunc(b.sub(num_keys, b.mul(idx, i64(GROUP_LEN))), I32)
    return b.icmp_signed("<", lanes, e.splat(left, GROUP_LEN))
