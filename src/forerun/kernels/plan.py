"""A plan: one pass over many spans, as integers.

    logical row   0 … start-1 | start  start+1  …            of one request
                  committed   | the span's tokens, one row each, in span order
    slot          page · page_size + lane                    of the whole cache

A token's keys are the committed rows, then its own ancestors from the root down, then itself.
So key j is always the token at position j, wherever the pages are and whatever else runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np

from forerun.types import IntArray, Span


class SlotTable(Protocol):
    """Maps a request's logical rows to slots of the cache."""

    def slots(self, length: int) -> IntArray:
        """Return the slots of rows 0 … length-1; asserts that the request holds them."""


@dataclass(frozen=True)
class PlanRow:
    """One request's part of a pass.

    The first `num_written` tokens of the span are in the cache from an earlier pass. They are
    ancestors here and do not run again: a draft model grows its tree level by level this way.
    """

    span: Span
    slots: IntArray  # [start + span length]: the slot of every logical row
    num_written: int = 0
    table: SlotTable | None = field(default=None, compare=False, repr=False)  # whose slots they are

    def __post_init__(self) -> None:
        num_tokens = len(self.span.tokens)
        rows = self.span.start + num_tokens
        assert len(self.slots) == rows, (len(self.slots), rows)
        assert 0 <= self.num_written < num_tokens, (self.num_written, num_tokens)
        assert min(self.span.wanted, default=rows) >= self.num_written, self.span.wanted

    @classmethod
    def of(cls, span: Span, table: SlotTable, num_written: int = 0) -> PlanRow:
        return cls(span, table.slots(span.start + len(span.tokens)), num_written, table)

    def __len__(self) -> int:
        return len(self.span.tokens) - self.num_written

    @property
    def context(self) -> IntArray:
        """The slots of the committed rows, in logical order."""
        return self.slots[: self.span.start]

    @property
    def write_slots(self) -> IntArray:
        """The slots that this pass writes: those of the tokens that run."""
        return self.slots[self.span.start + self.num_written :]

    def ancestors(self, idx: int) -> IntArray:
        """Return the slots of token `idx`'s ancestors in the span, root first, then its own."""
        path = np.array(self.span.tree.path_to(idx), dtype=np.int64)
        return self.slots[self.span.start + path]


@dataclass(frozen=True)
class Plan:
    """What one pass runs; every array is integers, in the order of `rows`.

    `next_slots` are the slots after each span, as many as the next pass needs if it is like this
    one; None for a request that ends here. With them a kernel set may begin the next pass before
    the host has read the drawn tokens: the request holds the slots anyway. `is_draft` marks a
    drafter's pass that guesses, so that the pass after it may be the verification.
    """

    rows: tuple[PlanRow, ...]
    next_slots: tuple[IntArray | None, ...] | None = None
    is_draft: bool = False

    def __post_init__(self) -> None:
        if len(self.rows) == 1:
            return  # a single table never has the same slot twice
        slots = self.write_slots.tolist()
        assert len(set(slots)) == len(slots), "two tokens of a pass share a cache slot"

    @classmethod
    def build(
        cls,
        pairs: Iterable[tuple[Span, SlotTable]],
        next_slots: tuple[IntArray | None, ...] | None = None,
        *,
        is_draft: bool = False,
    ) -> Plan:
        return cls(tuple([PlanRow.of(span, table) for span, table in pairs]), next_slots, is_draft)

    def __len__(self) -> int:
        return sum(map(len, self.rows))

    @property
    def num_wanted(self) -> int:
        return sum([len(row.span.wanted) for row in self.rows])

    def integers(self) -> tuple[Sequence[int], list[int], Sequence[int], Sequence[int]]:
        """Return tokens, write slots, wanted and positions, as plain integers where possible."""
        if len(self.rows) == 1 and not self.rows[0].num_written:
            (row,) = self.rows
            return row.span.tokens, row.write_slots.tolist(), row.span.wanted, row.span.positions
        arrays = self.tokens, self.write_slots, self.wanted, self.positions
        tokens, write_slots, wanted, positions = (array.tolist() for array in arrays)
        return tokens, write_slots, wanted, positions

    @cached_property
    def tokens(self) -> IntArray:
        return _flat(row.span.tokens[row.num_written :] for row in self.rows)  # [T]

    @cached_property
    def positions(self) -> IntArray:
        return _flat(row.span.positions[row.num_written :] for row in self.rows)  # [T]

    @cached_property
    def write_slots(self) -> IntArray:
        if len(self.rows) == 1:
            return self.rows[0].write_slots
        return _flat(row.write_slots.tolist() for row in self.rows)  # [T]

    @cached_property
    def wanted(self) -> IntArray:
        """The indices, within the pass, of the tokens whose logits are wanted, in span order."""
        wanted: list[int] = []
        first = 0
        for row in self.rows:
            wanted += [first + idx - row.num_written for idx in row.span.wanted]
            first += len(row)
        return np.array(wanted, dtype=np.int64)  # [R]


def _flat(parts: Iterable[Iterable[int]]) -> IntArray:
    return np.array([item for part in parts for item in part], dtype=np.int64)
