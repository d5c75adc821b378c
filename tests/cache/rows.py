"""A cache of plain values, one per slot."""

from __future__ import annotations

from collections.abc import Sequence

from forerun.cache import BlockTable, PagePool
from forerun.types import IntArray


class RowLog:
    """Stands in for the kernel set: a row is whatever was put there."""

    def __init__(self, num_slots: int) -> None:
        self.rows: list[object] = [None] * num_slots
        self.num_moved = 0

    def move_rows(self, sources: IntArray, targets: IntArray) -> None:
        gathered = [self.rows[slot] for slot in sources]
        for slot, row in zip(targets, gathered, strict=True):
            self.rows[slot] = row
        self.num_moved += len(sources)

    def write(self, table: BlockTable, start: int, values: Sequence[object]) -> None:
        slots = table.slots(start + len(values))[start:]
        for slot, value in zip(slots, values, strict=True):
            self.rows[slot] = value

    def read(self, table: BlockTable) -> list[object]:
        return [self.rows[slot] for slot in table.slots(table.length)]


def new_table(num_pages: int = 4, page_size: int = 4) -> tuple[PagePool, RowLog, BlockTable]:
    pool, log = PagePool(num_pages, page_size), RowLog(num_pages * page_size)
    return pool, log, BlockTable(pool, log)
