"""Blocks of 16 keys: a block has 16 slots, and one dimension of all 16 keys is one vector.

So a lane sums the score of one key, by one multiply-add for each dimension. Keys whose slots are
not one block, in order, are first copied into a spare block.
"""

from __future__ import annotations

from typing import Any, Final

from numba import int64, njit

from forerun.kernels.cpu.attention.stored import copy_number, number_bytes
from forerun.kernels.cpu.codegen.emitted import emitted
from forerun.kernels.cpu.codegen.lanes import GROUP_LEN, I1, I64, Emitter, Value, constant, vector
from forerun.kernels.cpu.codegen.machine import Machine
from forerun.kernels.cpu.codegen.native import int_at, ints

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

BLOCKS_TOGETHER: Final = 4  # blocks that are looked up, and scored, together


@emitted(int64, int64)
def _is_run(b: Any, slots: Value) -> Value:
    """Whether 16 slots are consecutive."""
    e = Emitter(b, Machine.target())
    found = e.load(slots, vector(I64, GROUP_LEN))
    first = e.splat(b.extract_element(found, I64(0)), GROUP_LEN)
    is_next = b.icmp_signed("==", found, b.add(first, constant(I64, list(range(GROUP_LEN)))))
    all_next = e.intrinsic(f"vector.reduce.and.v{GROUP_LEN}i1", I1, [is_next])
    return b.zext(all_next, I64)


@njit(inline="always")
def find_blocks(slots, start, end, keys, block_bytes, places, spare):
    """Write the addresses of the next few blocks to `places`; return the last one's index.

    Places after it repeat its address. Block i has slots number `start` + 16·i … + 15: numbers
    below 0 are lanes before the first key, and there are no slots from `end` on. Keys that are not
    one block in the store are copied to `spare`.
    """
    last, stored = min(((end - start + 15) >> 4), BLOCKS_TOGETHER) - 1, number_bytes()
    for idx in range(BLOCKS_TOGETHER):
        place = int_at(places, max(0, idx - 1))
        if idx <= last:
            first, stop = max(0, start + 16 * idx), min(end, start + 16 * (idx + 1))
            mine, count = slots + 8 * first, stop - first
            slot, lane = int_at(mine, 0), first - start & 15
            is_block = slot & 15 == lane
            if count == 16:
                is_block &= _is_run(mine) == 1
            else:
                for i in range(1, count):
                    is_block &= int_at(mine, i) == slot + i
            if is_block:
                place = keys + (slot >> 4) * block_bytes
            else:
                place = spare + idx * block_bytes
                for i in range(count):
                    slot = int_at(mine, i)
                    source = keys + (slot >> 4) * block_bytes + stored * (slot & 15)
                    target = place + stored * (lane + i)
                    for at in range(0, block_bytes, 16 * stored):
                        copy_number(source + at, target + at)
        ints(places)[idx] = place
    return last
