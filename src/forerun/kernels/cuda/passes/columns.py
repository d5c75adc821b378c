"""A plan as the kernels read it: integers of each token, and the slots of all keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from forerun.kernels.plan import Plan, PlanRow
from forerun.types import IntArray

I32 = npt.NDArray[np.int32]

PER_TOKEN: Final = ("tokens", "slots", "starts", "firsts", "lengths", "own_firsts", "num_keys")


@dataclass(frozen=True)
class Columns:
    per_token: I32  # [7, T], in the order of `PER_TOKEN`; `Inputs` says what they mean
    keys: IntArray  # slots of keys, in logical order, request after request
    positions: IntArray  # [T]
    wanted: IntArray  # [R] whose logits are asked for

    @classmethod
    def of(cls, plan: Plan) -> Columns:
        if all(len(row) == 1 and row.span.tree.is_chain for row in plan.rows):
            slots = [row.slots for row in plan.rows]
            return cls._single(plan.tokens, plan.write_slots, slots, plan.wanted)
        per_token = np.empty((len(PER_TOKEN), len(plan)), np.int32)
        keys = _Keys(per_token[2:])
        for row in plan.rows:
            keys.add(row)
        per_token[0], per_token[1] = plan.tokens, plan.write_slots
        return cls(per_token, np.concatenate(keys.slots), plan.positions, plan.wanted)

    @classmethod
    def after(cls, rows: Sequence[PlanRow], drawn: Sequence[int], slots: Sequence[int]) -> Columns:
        """One more token for each of `rows`: what the pass under way draws in its rows `drawn`."""
        write_slots = np.array(slots, np.int64)
        parts = [
            part
            for row, slot in zip(rows, write_slots[:, None], strict=True)
            for part in (row.slots, slot)
        ]
        tokens = -1 - np.array(drawn, np.int64)
        return cls._single(tokens, write_slots, parts, np.arange(len(rows)), 2)

    @classmethod
    def _single(
        cls,
        tokens: IntArray,
        write_slots: IntArray,
        slots: Sequence[IntArray],
        wanted: IntArray,
        num_parts: int = 1,
    ) -> Columns:
        """One token of each request; its keys are in `num_parts` of `slots`, itself last."""
        lengths = np.array([len(part) for part in slots]).reshape(-1, num_parts).sum(axis=1)
        ends = np.cumsum(lengths)
        zeros = np.zeros_like(lengths)
        columns = (tokens, write_slots, lengths - 1, ends - lengths, lengths, zeros, lengths)
        return cls(np.array(columns, np.int32), np.concatenate(slots), lengths - 1, wanted)

    def filled(self, at: int, num: int, dump_slot: int) -> Columns:
        """With `num` tokens for nobody before number `at`."""
        fill = np.array([[0], [dump_slot], [0], [len(self.keys)], [1], [0], [1]], np.int32)
        parts = self.per_token[:, :at], np.repeat(fill, num, axis=1), self.per_token[:, at:]
        positions = np.insert(self.positions, at, [0] * num)
        wanted = self.wanted + num * (self.wanted >= at)
        return Columns(np.concatenate(parts, axis=1), self.keys, positions, wanted)

    @property
    def num_tokens(self) -> int:
        return int(self.per_token.shape[1])

    @property
    def most_keys(self) -> int:
        return int(max(self.per_token[6].tolist()))

    @property
    def num_key_slots(self) -> int:
        return len(self.keys) + 1


class _Keys:
    """Fills starts, firsts, lengths, own_firsts and num_keys [5, T], a request at a time."""

    def __init__(self, per_token: I32) -> None:
        self._per_token = per_token
        self._num_tokens = self._num_slots = 0
        self.slots: list[IntArray] = []

    def add(self, row: PlanRow) -> None:
        first, at = self._num_slots, self._num_tokens
        self._take(row.slots)
        mine = self._per_token[:, at : at + len(row)]
        mine[0], mine[1] = row.span.start, first
        if row.span.tree.is_chain:  # all its keys lie in a row
            mine[2] = mine[4] = row.span.start + 1 + np.arange(row.num_written, len(row.span))
            mine[3] = 0
        else:
            mine[2] = row.span.start
            for column, idx in enumerate(range(row.num_written, len(row.span))):
                path = row.ancestors(idx)
                mine[3, column] = self._num_slots
                mine[4, column] = row.span.start + len(path)
                self._take(path)
        self._num_tokens += len(row)

    def _take(self, slots: IntArray) -> None:
        self.slots.append(slots)
        self._num_slots += len(slots)
