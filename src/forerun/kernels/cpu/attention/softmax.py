"""Scores to weights: e^(score − highest) and their sum, of one query, as vector IR.

Weight j goes to partial sum j mod 16; these are folded in halves.
"""

from __future__ import annotations

from typing import Any, Final

from numba import float32, int64

from forerun.kernels.cpu.codegen.emitted import emitted
from forerun.kernels.cpu.codegen.lanes import F32, GROUP_LEN, I32, Emitter, Value, constant, i64
from forerun.kernels.cpu.codegen.loops import loop
from forerun.kernels.cpu.codegen.machine import Machine
from forerun.kernels.cpu.codegen.scalar import emit_exp

_LOWEST: Final = -3.4028234663852886e38  # of float32
_COMPARED: Final = 4  # groups together


@emitted(float32, int64, int64)
def weigh(b: Any, scores: Value, num_keys: Value) -> Value:
    """scores[j] to weights, in place, up to a whole group of 16; returns their sum."""
    e = Emitter(b, Machine.host())
    lanes, lowest = constant(I32, list(range(GROUP_LEN))), constant(F32, [_LOWEST] * GROUP_LEN)
    last = b.sdiv(b.sub(num_keys, i64(1)), i64(GROUP_LEN))

    def found(idx: Value) -> tuple[Value, Value, Value]:
        """A group's place, its scores, and which of them are those of a key."""
        place = b.add(scores, b.mul(idx, i64(4 * GROUP_LEN)))
        left = b.sub(num_keys, b.mul(idx, i64(GROUP_LEN)))
        is_key = b.icmp_signed("<", lanes, e.splat(b.trunc(left, I32), GROUP_LEN))
        return place, e.load(place, lowest.type), is_key

    def larger(left: Value, right: Value) -> Value:
        """A score that is no number is not larger."""
        return b.select(b.fcmp_ordered(">", left, right), left, right)

    def compare(idx: Value, most: list[Value]) -> list[Value]:
        for at in range(_COMPARED):
            group = e.offset(b.mul(idx, i64(_COMPARED)), at)
            group = b.select(b.icmp_signed("<", group, last), group, last)
            _, score, is_key = found(group)
            most[at] = larger(b.select(is_key, score, lowest), most[at])
        return most

    def add(idx: Value, totals: list[Value]) -> list[Value]:
        place, score, is_key = found(idx)
        weight = emit_exp(e, b.fsub(score, highest))
        weight = b.select(is_key, weight, constant(F32, [0.0] * GROUP_LEN))
        e.store(weight, place)
        return [b.fadd(totals[0], weight)]

    num_turns = b.sdiv(b.add(last, i64(_COMPARED)), i64(_COMPARED))
    first, second, third, fourth = loop(b, num_turns, [lowest] * _COMPARED, compare)
    most = larger(larger(first, second), larger(third, fourth))
    highest = e.splat(b.extract_element(e.fold_each([most], larger), I32(0)), GROUP_LEN)
    none = constant(F32, [0.0] * GROUP_LEN)
    return e.fold(loop(b, e.offset(last, 1), [none], add)[0])
