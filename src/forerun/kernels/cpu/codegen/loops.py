"""Loops and branches in IR, with values carried through them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from forerun.kernels.cpu.codegen.lanes import I64, Value, i64


def loop(
    builder: Any,
    count: Value,
    start: list[Value],
    body: Callable[[Value, list[Value]], list[Value]],
) -> list[Value]:
    """carried = start; for idx in range(count): carried = body(idx, carried).

    `count` must be at least 1.
    """
    before = builder.basic_block
    inside, after = builder.append_basic_block("inside"), builder.append_basic_block("after")
    builder.branch(inside)
    builder.position_at_end(inside)
    idx = builder.phi(I64)
    idx.add_incoming(i64(0), before)
    carried = [builder.phi(value.type) for value in start]
    for phi, value in zip(carried, start, strict=True):
        phi.add_incoming(value, before)
    new = body(idx, list(carried))
    following = builder.add(idx, i64(1))
    end = builder.basic_block  # the body may have loops of its own
    idx.add_incoming(following, end)
    for phi, value in zip(carried, new, strict=True):
        phi.add_incoming(value, end)
    builder.cbranch(builder.icmp_signed("<", following, count), inside, after)
    builder.position_at_end(after)
    return new


def when(
    builder: Any,
    condition: Value,
    start: list[Value],
    body: Callable[[list[Value]], list[Value]],
) -> list[Value]:
    """carried = start; if condition: carried = body(carried)."""
    before = builder.basic_block
    inside, after = builder.append_basic_block("inside"), builder.append_basic_block("after")
    builder.cbranch(condition, inside, after)
    builder.position_at_end(inside)
    new = body(list(start))
    end = builder.basic_block
    builder.branch(after)
    builder.position_at_end(after)
    carried = [builder.phi(value.type) for value in start]
    for phi, old, value in zip(carried, start, new, strict=True):
        phi.add_incoming(old, before)
        phi.add_incoming(value, end)
    return carried
