"""A batch: a plan in the form that compiled operations read."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from copy import copy
from functools import cached_property, partial
from itertools import repeat
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from forerun.kernels.base import AttentionShape, Body, ChainNoise
from forerun.kernels.cpu.attention.attend import KEY_FIELDS, scratch_bytes
from forerun.kernels.cpu.codegen.compiled import address_of
from forerun.kernels.cpu.codegen.lanes import padded
from forerun.kernels.cpu.runtime.drawn import LEFT, DrawnRows, Mask, Result, as_bits, noise_ints
from forerun.kernels.cpu.runtime.program import Program, aligned_zeros
from forerun.kernels.plan import Plan, PlanRow
from forerun.sampling import CoupledDraws
from forerun.types import FloatArray, IntArray

F32 = npt.NDArray[np.float32]

_POSITIONS_TOGETHER: Final = 32
_FEW_NUMBERS: Final = 4096


class RopeTable:
    """cos and sin of position × frequency; each position is computed once, and by itself."""

    def __init__(self, inv_freq: FloatArray) -> None:
        self._inv_freq = inv_freq
        self._table = np.empty((0, 2, len(inv_freq)), np.float32)  # cos, then sin
        self._address = 0
        self._is_known = bytearray()

    def rotations(self, positions: Sequence[int]) -> tuple[F32, list[int]]:
        """Return the addresses of the positions' rows, and the table that must be kept alive for
        them: a larger one may replace it here."""
        if max(positions) >= len(self._is_known):
            self._grow(max(256, 2 * max(positions)) - len(self._is_known))
        for position in positions:
            if not self._is_known[position]:
                self._compute(position)
        first, row_bytes = self._address, self._table.strides[0]
        return self._table, [first + row_bytes * position for position in positions]

    def _compute(self, first: int) -> None:
        """Compute a position and those after it: calling numpy for each token would find its code
        evicted from the processor's caches."""
        for position in range(first, min(first + _POSITIONS_TOGETHER, len(self._is_known))):
            if not self._is_known[position]:
                angles = position * self._inv_freq
                self._table[position] = np.cos(angles), np.sin(angles)
                self._is_known[position] = True

    def _grow(self, num: int) -> None:
        more = np.empty((num, *self._table.shape[1:]), np.float32)
        table = np.concatenate((self._table, more))
        self._table, self._address = table, address_of(table)
        self._is_known += bytes(num)


class CpuBatch:
    """What one pass runs, as integers, and as arrays on first access.

    A recorded pass keeps the batch it was recorded with, because its steps hold the addresses of
    that batch's arrays; for a replay the new batch's integers are written into them (`take_in`).
    """

    def __init__(
        self,
        plan: Plan,
        shape: AttentionShape,
        rope: RopeTable,
        new_program: Callable[[int], Program],
        given: Sequence[FloatArray] = (),
        noise: ChainNoise | None = None,
    ) -> None:
        self._plan, self._rope = plan, rope
        self.size = len(plan), plan.num_wanted
        self.is_alone = len(plan.rows) == 1  # its tokens are of one request and share keys
        self.result = Result.LOGITS
        self._is_free = False  # whether all tokens are drawn here, and by noise alone
        self._noise: Sequence[int] = _NO_NOISE if noise is None else _chain_ints(noise)
        self.shape = shape
        self.num_embeddings = 0  # rows of the embedding table; 0 if the pass has not used one
        self.taps: tuple[F32, ...] = ()  # set when the pass has run
        self._new_program: Callable[[int], Program] | None = new_program
        self._given = given
        self._masks: list[Mask] = []  # kept alive: `_noise` holds their addresses
        self._held: Numbers | None = None

    @cached_property
    def _numbers(self) -> Numbers:
        return Numbers.of(self._plan, self._rope, self.shape.window)

    @cached_property
    def heads(self) -> tuple[int, int, int]:
        return self.shape.num_heads, self.shape.num_kv_heads, self.shape.head_dim

    @cached_property
    def program(self) -> Program:
        assert self._new_program is not None
        program = self._new_program(self.size[0])
        self._new_program = None  # it refers to the kernel set
        if self.result is not Result.LOGITS:
            program.drawn = DrawnRows(np.zeros(self.size[1], np.int64), self.noise)
        return program

    def draw(self, draws: Sequence[CoupledDraws | None]) -> bool:
        """Let the pass draw the tokens of all wanted rows that need only noise and masks. Return
        False if there are no such rows."""
        here, num_drawn, is_free, is_best = list[CoupledDraws | None](), 0, True, True
        for one in draws:
            if one is None or not one.masks_at_most:
                here.append(None)
                continue
            here.append(one)
            num_drawn += len(one)
            is_free = is_free and not one.changes_logits
            is_best = is_best and not one.params.temperature
        if num_drawn == 0 < self.size[1]:
            return False
        self._is_free = is_free and num_drawn == self.size[1]
        if is_best and self._is_free:
            self.result, self._noise = Result.BEST, []
            return True
        self.result = Result.NOISY
        wanted = [len(row.span.wanted) for row in self._plan.rows]
        self._noise, self._masks = noise_ints(here, wanted)
        return True

    def key(self, body: Body) -> tuple[Body, int, int, bool, Result]:
        """Return the key of its recordings: two batches with equal keys can share one."""
        return body, *self.size, self.is_alone, self.result

    @cached_property
    def _next_slots(self) -> list[IntArray]:
        """The next slots of each request, if the pass is plain and all requests continue."""
        slots, num_rows = self._plan.next_slots, len(self._plan.rows)
        if slots is None or self.size != (num_rows, num_rows):
            return []
        known = [more for more in slots if more is not None]
        return known if len(known) == num_rows else []

    @property
    def is_followed(self) -> bool:
        """Whether the next pass is known already, except its tokens."""
        return self._is_free and bool(self._next_slots)

    def following(self) -> Numbers:
        """Return the integers of the plain pass after this one, which has the same requests."""
        return Numbers.behind(self._plan.rows, self._next_slots, self._rope, self.shape.window)

    @property
    def drawn_by(self) -> Sequence[int]:
        """The integers by which tokens are drawn: see `noise_ints`."""
        return self._noise

    def is_like(self, numbers: Numbers, noise: Sequence[int], tokens: Sequence[int]) -> bool:
        """Whether this is a plain pass with the same slots, noise and tokens."""
        rows = self._plan.rows
        slots = rows[0].slots if self.is_alone else np.concatenate([row.slots for row in rows])
        return (
            len(rows) == self.size[0]
            and [row.span.tokens[0] for row in rows] == tokens
            and self._noise == noise
            and _is_same(slots, numbers.slots)
        )

    @cached_property
    def _arrays(self) -> _Arrays:
        integers = np.array([*self._numbers.integers, *self._noise], np.int64)
        return _Arrays.of(integers, *self.size)

    @cached_property
    def tokens(self) -> IntArray:
        return self._arrays.tokens

    @cached_property
    def write_slots(self) -> IntArray:
        return self._arrays.write_slots

    @cached_property
    def wanted(self) -> IntArray:
        return self._arrays.wanted

    @cached_property
    def keys(self) -> IntArray:
        return self._arrays.keys

    @cached_property
    def noise(self) -> IntArray:
        return self._arrays.noise

    @cached_property
    def turns(self) -> IntArray:
        return self._arrays.turns

    @cached_property
    def given_widths(self) -> list[int]:
        return [each.shape[1] for each in self._given]

    @cached_property
    def given(self) -> list[F32]:
        return [_padded(each) for each in self._given]  # [T, padded width]

    def check(self, ids: Sequence[int]) -> None:
        if self.num_embeddings:  # else the pass starts from given hidden states
            assert min(ids) >= 0, ids
            assert max(ids) < self.num_embeddings, (ids, self.num_embeddings)

    def forget_plan(self) -> None:
        """Drop the plan: a recording keeps this batch, and the plan would keep the store alive."""
        _ = self._numbers  # computed from the plan on first use
        self._plan = Plan(())

    def take_in(self, other: CpuBatch) -> None:
        """Take over the contents of `other`, which has the same size, at this batch's addresses."""
        numbers = other._numbers
        self.check(numbers.integers[: self.size[0]])
        self._arrays.write(*numbers.integers, *other._noise)
        self._numbers, self._masks = numbers, other._masks
        for mine, width, theirs in zip(self.given, self.given_widths, other._given, strict=True):
            mine[:, :width] = theirs

    def hold(self, numbers: Numbers) -> None:
        """Keep the following pass's numbers alive, too: compiled code may write them over these at
        any moment."""
        self._held = self._numbers
        self._numbers = numbers

    def part(self, first: int, last: int) -> CpuBatch:
        """Return a batch of tokens `first` … `last` - 1, whose arrays are views of these."""
        assert self.program  # create it now, so that both share it
        self.forget_plan()
        part, chosen = copy(self), slice(first, last)
        for name in _ADDRESSES:
            part.__dict__.pop(name, None)
        part.tokens, part.write_slots = self.tokens[chosen], self.write_slots[chosen]
        part.turns, part.keys = self.turns[chosen], self.keys[chosen]
        part.wanted = self.wanted[(first <= self.wanted) & (self.wanted < last)] - first
        part.given, part.given_widths = [each[chosen] for each in self.given], self.given_widths
        part.noise = self.noise
        part.size = len(part.tokens), len(part.wanted)
        return part

    @property
    def scratch_bytes(self) -> int:
        """The bytes of scratch memory that attention needs on each thread."""
        return self.scratch_bytes_for(self._numbers)

    def scratch_bytes_for(self, numbers: Numbers) -> int:
        return scratch_bytes(numbers.max_keys, numbers.max_own, self.shape.head_dim)

    @cached_property
    def address(self) -> int:
        """The address of all its integers."""
        return int(self.tokens.ctypes.data)

    @cached_property
    def keys_address(self) -> int:
        return int(self.keys.ctypes.data)

    @cached_property
    def turns_address(self) -> int:
        return int(self.turns.ctypes.data)

    @cached_property
    def write_slots_address(self) -> int:
        return int(self.write_slots.ctypes.data)


def _is_same(left: IntArray, right: IntArray) -> bool:
    """Compare as `np.array_equal` does, without its high fixed cost for short arrays."""
    if len(left) < _FEW_NUMBERS:
        return left.tobytes() == right.tobytes()
    return np.array_equal(left, right)


_ADDRESSES: Final = ("keys_address", "turns_address", "write_slots_address")


class _Arrays(NamedTuple):
    """Views of one array, so that one call writes them all."""

    write: Callable[..., None]  # write all integers, in this order; several times faster than numpy
    tokens: IntArray  # [T]
    write_slots: IntArray  # [T]
    turns: IntArray  # [T]: the addresses of each position's cos and sin
    wanted: IntArray  # [R]
    keys: IntArray  # [T, 4]: see `_keys`
    noise: IntArray  # [3] for a chain, else [R · NOISE_FIELDS], or nothing

    @classmethod
    def of(cls, integers: IntArray, num_tokens: int, num_wanted: int) -> _Arrays:
        each = (num_tokens, num_tokens, num_tokens, num_wanted, KEY_FIELDS * num_tokens)
        tokens, slots, turns, wanted, keys, noise = np.split(integers, np.cumsum(each))
        write = partial(struct.Struct(f"{len(integers)}q").pack_into, integers.data, 0)
        keys = keys.reshape(-1, KEY_FIELDS)
        return cls(write, tokens, slots, turns, wanted, keys, noise)


def _chain_ints(noise: ChainNoise) -> tuple[int, int, int]:
    """Return the temperature (the bits of a double), key and position."""
    return *as_bits(noise.temperature, noise.key), noise.position


_NO_NOISE: Final = _chain_ints(ChainNoise())


def _padded(rows: FloatArray) -> F32:
    num_rows, width = rows.shape
    found = aligned_zeros(num_rows, padded(width))
    found[:, :width] = rows
    return found


class Numbers(NamedTuple):
    """A plan as integers, and the arrays whose addresses are among them."""

    num_rows: int  # of the plan: its requests
    integers: list[int]  # tokens, write slots, turns, wanted, keys
    slots: IntArray
    rotations: F32
    max_keys: int  # the most keys of one token
    max_own: int = 0  # the most of them that it does not share with other tokens

    @classmethod
    def of(cls, plan: Plan, rope: RopeTable, window: int | None) -> Numbers:
        each, runs = zip(*[_run(row) for row in plan.rows], strict=True)
        slots = np.ascontiguousarray(each[0] if len(each) == 1 else np.concatenate(each))
        max_own = max([max(run.own_lengths) for run in runs if run.own_lengths], default=0)
        longest = max([run.lengths[-1] for run in runs]) + max_own
        keys = _keys(runs, address_of(slots), window)
        tokens, write_slots, wanted, positions = plan.integers()
        rotations, turns = rope.rotations(positions)
        integers = [*tokens, *write_slots, *turns, *wanted, *keys]
        return cls(len(runs), integers, slots, rotations, min(longest, window or longest), max_own)

    @classmethod
    def behind(
        cls, rows: Sequence[PlanRow], more: Sequence[IntArray], rope: RopeTable, window: int | None
    ) -> Numbers:
        """Return the numbers of the plain pass after `rows`, whose tokens are not known yet: one
        per row, written to the first slot of that row's `more`."""
        each = [part for row, one in zip(rows, more, strict=True) for part in (row.slots, one[:1])]
        slots = np.concatenate(each)
        lengths = [len(row.slots) + 1 for row in rows]
        keys = _keys([Run(one, (one,)) for one in lengths], address_of(slots), window)
        rotations, turns = rope.rotations([one - 1 for one in lengths])
        num, write_slots = len(rows), [int(one[0]) for one in more]
        integers = [*([LEFT] * num), *write_slots, *turns, *range(num), *keys]
        longest = max(lengths)
        return cls(num, integers, slots, rotations, min(longest, window or longest))


class Run(NamedTuple):
    """Tokens that share slots, in logical order. Each token's keys are the first of the shared
    slots, then its own slots, which come after the shared ones, token by token."""

    num_slots: int  # shared and own
    lengths: Sequence[int]  # how many shared slots each token sees
    own_lengths: Sequence[int] = ()  # how many slots of its own each token has


def _run(row: PlanRow) -> tuple[IntArray, Run]:
    """Return the slots and the run of the tokens that run. In a chain, each token sees one key more
    than the one before it; in a tree, the context and its path."""
    chosen = range(row.num_written, len(row.span))
    if row.span.tree.is_chain:
        first = row.span.start + 1
        lengths = range(first + chosen.start, first + chosen.stop)
        return row.slots, Run(len(row.slots), lengths)
    paths = [row.ancestors(idx) for idx in chosen]
    slots = np.concatenate((row.context, *paths))
    return slots, Run(len(slots), [row.span.start] * len(paths), list(map(len, paths)))


def _keys(runs: Sequence[Run], address: int, window: int | None) -> list[int]:
    """Return four fields per token: the address of its shared slots and their number, the address
    of its own slots and their number. A sliding window leaves out the first of them. `address` is
    that of the first run's slots; the other runs follow it."""
    keys: list[int] = []
    for run in runs:
        own = address + 8 * run.lengths[0]
        for length, num_own in zip(run.lengths, run.own_lengths or repeat(0)):  # noqa: B905
            if window is None or length + num_own <= window:
                keys += (address, length, own, num_own)
            else:
                hidden = length + num_own - window
                late = max(0, hidden - length)  # how many of its own slots are hidden
                shared = (address + 8 * (hidden - late), length - hidden + late)
                keys += (*shared, own + 8 * late, num_own - late)
            own += 8 * num_own
        address += 8 * run.num_slots
    return keys
