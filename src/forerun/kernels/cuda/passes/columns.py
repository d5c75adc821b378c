"""A plan as the kernels read it: integers of each token, and the slots of all keys."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from forerun.kernels.plan import Plan, PlanRow
from forerun.types import IntArray

I32 = npt.NDArray[np.int32]

PER_TOKEN: Final = ("tokens", "slots", "starts", "firsts", "lengths", "own_firsts", "num_keys")


class Columns(NamedTuple):
    per_token: I32  # [7, T], in the order of `PER_TOKEN`; `Inputs` says what they mean
    keys: IntArray  # slots of keys, in logical order, request after request
    positions: Sequence[int]  # [T]
    wanted: Sequence[int]  # [R] tokens whose logits are wanted
    most_keys: int  # most keys of one token

    @classmethod
    def of(cls, plan: Plan) -> Columns:
        tokens, write_slots, wanted, positions = plan.integers()
        if len(plan.rows) == 1 and plan.rows[0].span.tree.is_chain:
            starts, zeros = [positions[0]] * len(tokens), [0] * len(tokens)
            num_keys = [position + 1 for position in positions]
            per_token = (tokens, write_slots, starts, zeros, num_keys, zeros, num_keys)
            slots = plan.rows[0].slots
            return cls(_as_int32(per_token), slots, positions, wanted, num_keys[-1])
        keys = _Keys()
        for row in plan.rows:
            keys.add(row)
        return keys.columns(tokens, write_slots, positions, wanted)

    @classmethod
    def after(cls, rows: Sequence[PlanRow], drawn: Sequence[int], slots: Sequence[int]) -> Columns:
        """Plan one more token for each of `rows`: the pass under way draws it in row `drawn`."""
        before = [len(row.slots) for row in rows]
        num_keys = [num + 1 for num in before]
        firsts, zeros = [0, *accumulate(num_keys[:-1])], [0] * len(rows)
        tokens = [-1 - idx for idx in drawn]
        per_token = (tokens, slots, before, firsts, num_keys, zeros, num_keys)
        keys = np.empty(firsts[-1] + num_keys[-1], np.int64)
        for row, first, num, slot in zip(rows, firsts, before, slots, strict=True):
            keys[first : first + num] = row.slots
            keys[first + num] = slot
        wanted = range(len(rows))
        return cls(_as_int32(per_token), keys, before, wanted, max(num_keys))

    def filled(self, at: int, num: int, dump_slot: int) -> Columns:
        """Insert `num` padding tokens before token `at`."""
        fill = np.array([[0], [dump_slot], [0], [len(self.keys)], [1], [0], [1]], np.int32)
        parts = self.per_token[:, :at], np.repeat(fill, num, axis=1), self.per_token[:, at:]
        positions = (*self.positions[:at], *[0] * num, *self.positions[at:])
        wanted = [idx + num if idx >= at else idx for idx in self.wanted]
        per_token = np.concatenate(parts, axis=1)
        return Columns(per_token, self.keys, positions, wanted, self.most_keys)

    @property
    def num_tokens(self) -> int:
        return int(self.per_token.shape[1])

    @property
    def num_key_slots(self) -> int:
        return len(self.keys) + 1


class _Keys:
    """Collects the slots of keys, request by request, and which of them each token has."""

    def __init__(self) -> None:
        self._slots: list[IntArray] = []
        self._num_slots = 0
        self._starts, self._firsts, self._lengths = list[int](), list[int](), list[int]()
        self._own_firsts, self._num_keys = list[int](), list[int]()

    def add(self, row: PlanRow) -> None:
        start = row.span.start
        if row.span.tree.is_chain:
            self.add_chain(start + row.num_written, start + len(row.span), row.slots)
            return
        num, first = len(row), self._num_slots
        self._take(row.slots)
        self._starts += [start] * num
        self._firsts += [first] * num
        self._lengths += [start] * num
        for idx in range(row.num_written, len(row.span)):
            path = row.ancestors(idx)
            self._own_firsts.append(self._num_slots)
            self._num_keys.append(start + len(path))
            self._take(path)

    def add_chain(self, start: int, end: int, slots: IntArray) -> None:
        """Add tokens `start` … `end` - 1 of a request, whose keys are one run of slots."""
        num, num_keys = end - start, range(start + 1, end + 1)
        self._starts += [start] * num
        self._firsts += [self._num_slots] * num
        self._lengths += num_keys
        self._own_firsts += [0] * num
        self._num_keys += num_keys
        self._take(slots)

    def _take(self, slots: IntArray) -> None:
        self._slots.append(slots)
        self._num_slots += len(slots)

    def columns(
        self,
        tokens: Sequence[int],
        write_slots: Sequence[int],
        positions: Sequence[int],
        wanted: Sequence[int],
    ) -> Columns:
        keys = self._starts, self._firsts, self._lengths, self._own_firsts, self._num_keys
        per_token = _as_int32((tokens, write_slots, *keys))
        slots = np.concatenate(self._slots)
        return Columns(per_token, slots, positions, wanted, max(self._num_keys))


def _as_int32(values: Sequence[Sequence[int]]) -> I32:
    try:
        return np.array(values, np.int32)
    except OverflowError as error:
        raise AssertionError(f"a token or a place that is none: {error}") from None
