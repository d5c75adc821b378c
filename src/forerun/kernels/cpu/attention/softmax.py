"""Scores to weights: e^(score − highest) and their sum, of a few heads side by side, as vector IR.

Weight j goes to partial sum j mod 4, whatever the heads beside it.
"""

from __future__ import annotations

from typing import Any, Final

from numba import int64, void

from forerun.kernels.cpu.attention.head_group import for_each_width
from forerun.kernels.cpu.codegen.emitted import emitted
from forerun.kernels.cpu.codegen.lanes import F32, GROUP_LEN, I32, Emitter, Value, constant, i64
from forerun.kernels.cpu.codegen.loops import loop
from forerun.kernels.cpu.codegen.machine import Machine
from forerun.kernels.cpu.codegen.scalar import emit_exp

_NUM_SUMS: Final = 4
_LOWEST: Final = -3.4028234663852886e38  # of float32


@emitted(void, int64, int64, int64, int64, int64)
def weigh(
    b: Any, scores: Value, stride: Value, num_keys: Value, sums: Value, num_heads: Value
) -> None:
    """scores[head, j] to weights, in place, up to a whole group of 16; their sums to sums[head]."""
    e = Emitter(b, Machine.host())
    lanes, lowest = constant(I32, list(range(GROUP_LEN))), constant(F32, [_LOWEST] * GROUP_LEN)
    num_groups = b.sdiv(b.add(num_keys, i64(GROUP_LEN - 1)), i64(GROUP_LEN))

    def is_keys(idx: Value) -> Value:
        """Which lanes of a group have a key."""
        left = b.sub(num_keys, b.mul(idx, i64(GROUP_LEN)))
        return b.icmp_signed("<", lanes, e.splat(b.trunc(left, I32), GROUP_LEN))

    def larger(left: Value, right: Value) -> Value:
        """A score that is no number is not larger."""
        return b.select(b.fcmp_ordered(">", left, right), left, right)

    def emit(width: int) -> None:
        heads = [b.add(scores, b.mul(stride, i64(head))) for head in range(width)]

        def compare(idx: Value, most: list[Value]) -> list[Value]:
            is_key, at = is_keys(idx), b.mul(idx, i64(4 * GROUP_LEN))
            found = [e.load(b.add(head, at), lowest.type) for head in heads]
            found = [b.select(is_key, mine, lowest) for mine in found]
            return [larger(mine, old) for mine, old in zip(found, most, strict=True)]

        most = [
            e.splat(b.extract_element(e.fold_each([found], larger), I32(0)), GROUP_LEN)
            for found in loop(b, num_groups, [lowest] * width, compare)
        ]

        def add(idx: Value, totals: list[Value]) -> list[Value]:
            is_key, at = is_keys(idx), b.mul(idx, i64(4 * GROUP_LEN))
            for head in range(width):
                place = b.add(heads[head], at)
                score = e.load(place, lowest.type)
                weight = emit_exp(e, b.fsub(score, most[head]))
                weight = b.select(is_key, weight, constant(F32, [0.0] * GROUP_LEN))
                e.store(weight, place)
                for first in range(0, GROUP_LEN, _NUM_SUMS):
                    totals[head] = b.fadd(totals[head], e.part(weight, first, _NUM_SUMS))
            return totals

        none = constant(F32, [0.0] * _NUM_SUMS)
        for head, total in enumerate(loop(b, num_groups, [none] * width, add)):
            first, second, third, fourth = (
                b.extract_element(total, I32(idx)) for idx in range(_NUM_SUMS)
            )
            total = b.fadd(b.fadd(first, second), b.fadd(third, fourth))
            e.store(total, e.offset(sums, 4 * head))

    for_each_width(b, num_heads, emit)
