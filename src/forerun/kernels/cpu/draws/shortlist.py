"""A block's guesses, from a few candidates of each place.

What a guess adds to the logits of the next place is a product with a row of each token. Taken for
all of them, place after place, that would be most of a small head's time; the candidates of all
places are found side by side, and the guesses then picked in one short walk.

    a place's candidates    top logit | Σ e^(logit − top) | NUM × value | NUM × logit | NUM × which

`value` is logit / temperature + noise where guesses are drawn, else the logit; the best come first.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import float32, float64, int64, njit, uint64

from forerun.kernels.cpu.codegen.emitted import emitted
from forerun.kernels.cpu.codegen.lanes import F32, GROUP_LEN, I32, Emitter, Value, constant, i64
from forerun.kernels.cpu.codegen.loops import loop
from forerun.kernels.cpu.codegen.machine import Machine
from forerun.kernels.cpu.codegen.native import (
    dot,
    doubles,
    floats,
    int_at,
    ints,
    leading_zeros,
)
from forerun.kernels.cpu.codegen.scalar import emit_exp, exp32
from forerun.kernels.cpu.codegen.step import arg
from forerun.kernels.cpu.draws.gumbel import MOST, gumbel_noise
from forerun.kernels.cpu.draws.noise_words import first_word

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

NUM_CANDIDATES: Final = 32
WIDTH: Final = 2 + 3 * NUM_CANDIDATES  # of a place's candidates, in floats
_NUM = NUM_CANDIDATES
_LOWEST = float32(np.finfo(np.float32).min)
_GROUP_BYTES: Final = 4 * GROUP_LEN


def _groups(b: Any, num: Value) -> tuple[Value, Any]:
    """How many there are of so many floats, and which lanes of each count."""
    lanes = constant(I32, list(range(GROUP_LEN)))

    def is_there(idx: Value) -> Value:
        left = b.trunc(b.sub(num, b.mul(idx, i64(GROUP_LEN))), I32)
        return b.icmp_signed("<", lanes, Emitter(b, Machine.host()).splat(left, GROUP_LEN))

    return b.sdiv(b.add(num, i64(GROUP_LEN - 1)), i64(GROUP_LEN)), is_there


@emitted(float32, int64, int64)
def _highest(b: Any, address: Value, num: Value) -> Value:
    """Of `num` floats in padded rows."""
    e, lowest = Emitter(b, Machine.host()), constant(F32, [float(_LOWEST)] * GROUP_LEN)
    num_groups, is_there = _groups(b, num)

    def larger(left: Value, right: Value) -> Value:
        return b.select(b.fcmp_ordered(">", left, right), left, right)

    def compare(idx: Value, most: list[Value]) -> list[Value]:
        found = e.load(b.add(address, b.mul(idx, i64(_GROUP_BYTES))), lowest.type)
        return [larger(b.select(is_there(idx), found, lowest), most[0])]

    (most,) = loop(b, num_groups, [lowest], compare)
    return b.extract_element(e.fold_each([most], larger), I32(0))


@emitted(float32, int64, int64, float32)
def _weight_of_all(b: Any, address: Value, num: Value, top: Value) -> Value:
    """Σ e^(logit − top)"""
    e, none = Emitter(b, Machine.host()), constant(F32, [0.0] * GROUP_LEN)
    (num_groups, is_there), tops = _groups(b, num), e.splat(top, GROUP_LEN)

    def add(idx: Value, total: list[Value]) -> list[Value]:
        found = e.load(b.add(address, b.mul(idx, i64(_GROUP_BYTES))), none.type)
        weight = emit_exp(e, b.fsub(found, tops))
        return [b.fadd(total[0], b.select(is_there(idx), weight, none))]

    return e.fold(loop(b, num_groups, [none], add)[0])


@njit
def _insert(place, value, logit, idx):
    """Among the candidates of a place, all of which are worse than the last that is kept."""
    values, logits = floats(place + 8), floats(place + 8 + 4 * _NUM)
    which = floats(place + 8 + 8 * _NUM)
    at = _NUM - 1
    while at > 0 and values[at - 1] < value:
        values[at], logits[at], which[at] = values[at - 1], logits[at - 1], which[at - 1]
        at -= 1
    values[at], logits[at], which[at] = value, logit, float32(idx)


def shortlist(step, chunk, _scratch):
    """The candidates of one place."""
    address, num, ids = arg(step, 0) + chunk * arg(step, 1), arg(step, 2), ints(arg(step, 3))
    temperature, key = doubles(arg(step, 4))[0], int_at(arg(step, 4), 1)
    position = int_at(arg(step, 4), 2) + chunk
    place = arg(step, 5) + chunk * arg(step, 6)
    logits, values = floats(address), floats(place + 8)
    top = _highest(address, num)
    floats(place)[0], floats(place)[1] = top, _weight_of_all(address, num, top)
    for at in range(_NUM):
        values[at] = _LOWEST
        floats(place + 8 + 8 * _NUM)[at] = float32(0)
    if temperature == 0:
        for i in range(num):
            if logits[i] > values[_NUM - 1]:
                _insert(place, logits[i], logits[i], i)
        return
    inverse = 1 / temperature
    for i in range(num):
        value, least = float64(logits[i]) * inverse, float64(values[_NUM - 1])
        if value + MOST[32] > least:
            zeros = leading_zeros(uint64(first_word(key, position, ids[i]))) - 32
            if value + MOST[zeros] > least:
                noisy = value + gumbel_noise(key, position, ids[i])
                if noisy > least:
                    _insert(place, float32(noisy), logits[i], i)


@njit
def _product(left, right, num):
    total, num_whole = float32(0), num // GROUP_LEN
    if num_whole > 0:
        total += dot(left, right, num_whole)
    for i in range(num_whole * GROUP_LEN, num):
        total += floats(left)[i] * floats(right)[i]
    return total


def walk(step, _chunk, _scratch):
    """The guess of each place: its best candidate, once the one before it is guessed."""
    first, stride, num_places = arg(step, 0), arg(step, 1), arg(step, 2)
    ids, temperature = ints(arg(step, 3)), doubles(arg(step, 4))[0]
    gates, gate_stride, table, out = arg(step, 5), arg(step, 6), arg(step, 7), arg(step, 8)
    rank, added = arg(step, 9), floats(arg(step, 10))
    picks, pick_stride = arg(step, 11), arg(step, 12)
    inverse, guess = float32(1 if temperature == 0 else 1 / temperature), 0
    for number in range(num_places):
        place = first + number * stride
        top, total = floats(place)[0], floats(place)[1]
        values, logits = floats(place + 8), floats(place + 8 + 4 * _NUM)
        which = floats(place + 8 + 8 * _NUM)
        best, most, others = 0, _LOWEST, total
        if number > 0:
            gate, row = floats(gates + number * gate_stride), floats(table + 4 * rank * guess)
            for i in range(rank):
                added[i] = (float32(1) + gate[i]) * row[i]
        for at in range(_NUM):
            if values[at] == _LOWEST:
                break
            others -= exp32(logits[at] - top)
            if number > 0:
                delta = _product(arg(step, 10), out + 4 * rank * int64(which[at]), rank)
                logits[at] += delta
                values[at] += delta * inverse
            if values[at] > most:
                best, most = at, values[at]
        weight = max(others, float32(0)) * exp32(top - logits[best])
        for at in range(_NUM):
            if values[at] > _LOWEST:
                weight += exp32(logits[at] - logits[best])
        guess = int64(which[best])
        picked = floats(picks + number * pick_stride)
        picked[0], picked[1], picked[2] = float32(ids[guess]), 1 / weight, float32(guess)
