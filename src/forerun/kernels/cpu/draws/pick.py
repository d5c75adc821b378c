"""A drafter's guess, picked inside the pass that computes its logits.

It is only a guess, which the target verifies, so it need not equal `sampling` bit for bit.
"""

from __future__ import annotations

from typing import Any, Final

from numba import float32, float64, int64, uint64

from forerun.kernels.cpu.codegen.emitted import emitted
from forerun.kernels.cpu.codegen.lanes import F32, GROUP_LEN, I32, Emitter, Value, constant, i64
from forerun.kernels.cpu.codegen.loops import loop
from forerun.kernels.cpu.codegen.machine import Machine
from forerun.kernels.cpu.codegen.native import doubles, floats, int_at, ints, leading_zeros
from forerun.kernels.cpu.codegen.scalar import emit_exp, exp32
from forerun.kernels.cpu.codegen.step import arg
from forerun.kernels.cpu.draws.gumbel import MOST, gumbel_noise
from forerun.kernels.cpu.draws.noise_words import first_word

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

_FAR = 16.0  # a token this far below the best would win once in 10^7 draws
_LOWEST: Final = -3.4028234663852886e38  # of float32
_GROUP_BYTES: Final = 4 * GROUP_LEN


def _groups(b: Any, num: Value) -> tuple[Value, Any]:
    """Return the number of groups of `num` floats, and a function: the valid lanes of a group."""
    lanes = constant(I32, list(range(GROUP_LEN)))

    def is_there(idx: Value) -> Value:
        left = b.trunc(b.sub(num, b.mul(idx, i64(GROUP_LEN))), I32)
        return b.icmp_signed("<", lanes, Emitter(b, Machine.host()).splat(left, GROUP_LEN))

    return b.sdiv(b.add(num, i64(GROUP_LEN - 1)), i64(GROUP_LEN)), is_there


@emitted(float32, int64, int64)
def highest(b: Any, address: Value, num: Value) -> Value:
    """Return the highest of `num` floats of a padded row."""
    e, lowest = Emitter(b, Machine.host()), constant(F32, [_LOWEST] * GROUP_LEN)
    num_groups, is_there = _groups(b, num)

    def larger(left: Value, right: Value) -> Value:
        return b.select(b.fcmp_ordered(">", left, right), left, right)

    def compare(idx: Value, most: list[Value]) -> list[Value]:
        found = e.load(b.add(address, b.mul(idx, i64(_GROUP_BYTES))), lowest.type)
        return [larger(b.select(is_there(idx), found, lowest), most[0])]

    (most,) = loop(b, num_groups, [lowest], compare)
    return b.extract_element(e.fold_each([most], larger), I32(0))


@emitted(float32, int64, int64, float32)
def weight_of_all(b: Any, address: Value, num: Value, top: Value) -> Value:
    """Σ e^(logit − top)"""
    e, none = Emitter(b, Machine.host()), constant(F32, [0.0] * GROUP_LEN)
    (num_groups, is_there), tops = _groups(b, num), e.splat(top, GROUP_LEN)

    def add(idx: Value, total: list[Value]) -> list[Value]:
        found = e.load(b.add(address, b.mul(idx, i64(_GROUP_BYTES))), none.type)
        weight = emit_exp(e, b.fsub(found, tops))
        return [b.fadd(total[0], b.select(is_there(idx), weight, none))]

    return e.fold(loop(b, num_groups, [none], add)[0])


def pick(step, _chunk, _scratch):
    """Write the id of the best logit (with noise if the temperature is above 0), its probability,
    and its index among the ids."""
    logits, ids, num = floats(arg(step, 0)), ints(arg(step, 2)), arg(step, 3)
    if arg(step, 1) != 0:
        delta = floats(arg(step, 1))
        for i in range(num):
            logits[i] = logits[i] + delta[i]
    temperature, key = doubles(arg(step, 4))[0], int_at(arg(step, 4), 1)
    position = int_at(arg(step, 4), 2) + arg(step, 5)
    best, top = 0, highest(arg(step, 0), num)
    while best < num - 1 and logits[best] != top:
        best += 1
    total = weight_of_all(arg(step, 0), num, top)
    if temperature > 0:
        inverse = 1 / temperature
        most = float64(top) * inverse + gumbel_noise(key, position, ids[best])
        for i in range(num):
            value = float64(logits[i]) * inverse
            if value + _FAR >= most:
                zeros = leading_zeros(uint64(first_word(key, position, ids[i]))) - 32
                if value + MOST[zeros] >= most:
                    noisy = value + gumbel_noise(key, position, ids[i])
                    if noisy > most:
                        best, most = i, noisy
    picked = floats(arg(step, 7))
    picked[0], picked[1] = float32(ids[best]), exp32(logits[best] - top) / total
    picked[2] = float32(best)
    if arg(step, 6) != 0:
        ints(arg(step, 6))[0] = ids[best]


def gated_row(step, _chunk, _scratch):
    """(1 + gate) · the table's row for a guess."""
    gate, width, out = floats(arg(step, 1)), arg(step, 3), floats(arg(step, 4))
    row = floats(arg(step, 0) + 4 * width * int64(floats(arg(step, 2))[2]))
    for i in range(width):
        out[i] = (float32(1) + gate[i]) * row[i]
