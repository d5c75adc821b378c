"""Masks of allowed tokens: a bit for each, the lowest id first, in groups of 16 bits.

A mask may be shorter than a row of logits; tokens after its end are not allowed.
"""

from __future__ import annotations

from typing import Any

from numba import int64, njit

from forerun.kernels.cpu.codegen.emitted import emitted
from forerun.kernels.cpu.codegen.lanes import (
    GROUP_LEN,
    I16,
    I32,
    I64,
    Emitter,
    Value,
    constant,
    i64,
)
from forerun.kernels.cpu.codegen.machine import Machine
from forerun.kernels.cpu.codegen.native import int_at
from forerun.kernels.cpu.runtime.drawn import MASK, NUM_GROUPS

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

_ALL = (1 << GROUP_LEN) - 1


@njit(inline="always")
def group_bits(noise, idx):
    """Return the bits of a row's idx-th group of tokens; all of them if the row has no mask."""
    mask = int_at(noise, MASK)
    return int64(_ALL) if mask == 0 else _masked_group(mask, int_at(noise, NUM_GROUPS), idx)


@emitted(int64, int64, int64, int64)
def _masked_group(b: Any, mask: Value, num_groups: Value, idx: Value) -> Value:
    return b.zext(_group(b, mask, num_groups, idx), I64)


def group_lanes(b: Any, mask: Value, num_groups: Value, idx: Value) -> Value:
    """Return the idx-th group of a mask as lanes."""
    bits = b.zext(_group(b, mask, num_groups, idx), I32)
    each = constant(I32, [1 << lane for lane in range(GROUP_LEN)])
    found = b.and_(Emitter(b, Machine.host()).splat(bits, GROUP_LEN), each)
    return b.icmp_signed("!=", found, constant(I32, [0] * GROUP_LEN))


def _group(b: Any, mask: Value, num_groups: Value, idx: Value) -> Value:
    is_there = b.icmp_signed("<", idx, num_groups)
    place = b.add(mask, b.mul(b.select(is_there, idx, i64(0)), i64(GROUP_LEN // 8)))
    return b.select(is_there, Emitter(b, Machine.host()).load(place, I16), I16(0))
