"""A pass as integers: tokens, positions, slots, and each token's keys in logical order."""

from __future__ import annotations

import numpy as np
import pytest

from forerun.cache import BlockTable
from forerun.kernels import Plan, PlanRow
from forerun.kernels.key_walk import queries_of
from forerun.types import ROOT, Span, Tree
from tests.cache.rows import new_table

FORKED = Tree((ROOT, 0, 0, 1, 2))  # 0 ─ 1 ─ 3 and 0 ─ 2 ─ 4


def committed(length: int, page_size: int = 4) -> BlockTable:
    _, _, table = new_table(num_pages=8, page_size=page_size)
    table.reserve(length)
    return table


def forked_row(num_written: int = 0, wanted: tuple[int, ...] = (0, 4)) -> PlanRow:
    """Five tree tokens after seven committed rows; row n is in slot n + 100."""
    span = Span(7, (10, 11, 12, 13, 14), FORKED, wanted)
    return PlanRow(span, np.arange(100, 112), num_written)


def keys(row: PlanRow) -> list[list[int]]:
    """Replay the queries of a row: the keys that each token sees, as logical rows."""
    buffer: list[int] = []
    seen = []
    for query in queries_of(row):
        buffer = buffer[: query.keep] + [int(slot) - 100 for slot in query.fill]
        assert len(buffer) == query.num_keys
        seen.append(list(buffer))
    return seen


def test_integers_of_several_spans_follow_one_another() -> None:
    pool, log, first = new_table(num_pages=8, page_size=2)
    second = BlockTable(pool, log)
    for _ in range(3):
        first.reserve(2)
        second.reserve(1)
    pairs = [
        (Span.prompt_chunk(3, (7, 8, 9), is_last=True), first),
        (Span(1, (4, 5), Tree((ROOT, ROOT)), (0, 1)), second),
    ]
    plan = Plan.build(pairs)
    assert len(plan) == 5
    assert plan.tokens.tolist() == [7, 8, 9, 4, 5]
    assert plan.positions.tolist() == [3, 4, 5, 1, 1]
    assert plan.wanted.tolist() == [2, 3, 4]
    assert plan.write_slots.tolist() == [*first.slots(6)[3:], *second.slots(3)[1:]]


def test_a_token_sees_the_committed_rows_then_its_own_ancestors() -> None:
    past = list(range(7))
    assert keys(forked_row()) == [
        [*past, 7],
        [*past, 7, 8],
        [*past, 7, 9],
        [*past, 7, 8, 10],
        [*past, 7, 9, 11],
    ]


def test_written_tokens_are_ancestors_but_do_not_run() -> None:
    row = forked_row(num_written=3, wanted=(3, 4))
    assert keys(row) == keys(forked_row())[3:]
    plan = Plan((row,))
    assert plan.tokens.tolist() == [13, 14]
    assert plan.positions.tolist() == [9, 9]
    assert plan.write_slots.tolist() == [110, 111]
    assert plan.wanted.tolist() == [0, 1]


def test_a_chain_fills_one_row_a_token() -> None:
    span = Span.prompt_chunk(3, (1, 2, 3, 4), is_last=True)
    fills = [len(query.fill) for query in queries_of(PlanRow(span, np.arange(7)))]
    assert fills == [4, 1, 1, 1]


def test_rows_that_were_not_reserved_are_refused() -> None:
    with pytest.raises(AssertionError):
        Plan.build([(Span.prompt_chunk(4, (1, 2), is_last=True), committed(5))])


def test_logits_of_tokens_that_do_not_run_are_refused() -> None:
    with pytest.raises(AssertionError):
        forked_row(num_written=3, wanted=(2, 3))


def test_two_tokens_never_write_to_one_slot() -> None:
    table = committed(4)
    span = Span.prompt_chunk(2, (1, 2), is_last=True)
    with pytest.raises(AssertionError, match="share a cache slot"):
        Plan.build([(span, table), (span, table)])
