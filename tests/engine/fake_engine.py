"""An engine without a model: each row of its cache is a value that depends on all tokens before it.

A row is computed from the row before it, and a request emits tokens from its last row, so a row
that is lost, stale or another caller's changes the output.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import cast

from forerun.cache import BlockTable, KVCache
from forerun.engine.scheduling.limits import SchedulerLimits
from forerun.engine.scheduling.next_pass import Grant
from forerun.engine.scheduling.scheduler import Schedule, Scheduler
from forerun.engine.scheduling.target_pool import TargetPool
from forerun.kernels import AttentionShape, Kernels
from forerun.types import IntArray

VOCAB = 3
GARBAGE = -1


class ValueKernels:
    """A store is a list of values, one per slot."""

    def new_store(self, _shape: AttentionShape, _num_layers: int, num_slots: int) -> list[int]:
        return [GARBAGE] * num_slots

    def move_rows(self, store: list[int], sources: IntArray, targets: IntArray) -> None:
        for slot, value in zip(targets, [store[slot] for slot in sources], strict=True):
            store[slot] = value


def row_after(before: int, token: int) -> int:
    return hash((before, token)) % (1 << 61)


def start_row(salt: str | None) -> int:
    """Return the first row of a caller; rows differ by salt, so that a mix-up shows."""
    return 7 if salt is None else 1000 + sum(salt.encode())


@dataclass
class FakeRequest:
    id: int
    prompt: tuple[int, ...]
    max_tokens: int
    table: BlockTable
    priority: int = 0
    cache_salt: str | None = None
    tokens: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tokens = list(self.prompt)

    @property
    def num_tokens(self) -> int:
        return len(self.tokens)

    @property
    def num_rows(self) -> int:
        return self.table.length

    @property
    def max_num_tokens(self) -> int:
        return len(self.prompt) + self.max_tokens

    @property
    def is_finished(self) -> bool:
        return self.num_tokens == self.max_num_tokens

    def alone(self) -> list[int]:
        """Return the tokens that this request ends with when it is the only one."""
        tokens, row = list(self.prompt), start_row(self.cache_salt)
        for idx in range(self.max_num_tokens):
            if idx == len(tokens):
                tokens.append(row % VOCAB)
            row = row_after(row, tokens[idx])
        return tokens


class FakeEngine:
    """Steps as the engine does: schedule, reserve, write, keep, publish, remove."""

    def __init__(self, limits: SchedulerLimits, num_pages: int, page_size: int) -> None:
        kernels = cast(Kernels, ValueKernels())
        self.cache = KVCache(kernels, AttentionShape(1, 1, 2), 1, num_pages, page_size)
        self.requests: dict[int, FakeRequest] = {}
        self.scheduler = Scheduler(limits, TargetPool(self.cache, self.requests))
        self.finished: list[FakeRequest] = []
        self.num_computed = 0  # rows written for known tokens
        self._num_added = 0

    def add(
        self,
        prompt: Sequence[int],
        max_tokens: int,
        priority: int = 0,
        salt: str | None = None,
    ) -> FakeRequest:
        table = self.cache.new_table()
        request = FakeRequest(self._num_added, tuple(prompt), max_tokens, table, priority, salt)
        self.scheduler.add(request)
        self._num_added += 1
        self.requests[request.id] = request
        return request

    def remove(self, request_id: int) -> None:
        assert self.scheduler.remove(request_id)
        del self.requests[request_id]

    def step(
        self,
        wanted: Mapping[int, int] | None = None,
        rng: Random | None = None,
        failing: Collection[int] = (),
    ) -> Schedule:
        """Run one step; `failing` are the requests that fail after their rows were reserved."""
        schedule = self.scheduler.schedule(wanted or {})
        assert schedule.grants or not self.requests, "nobody advances"
        rng = rng or Random(0)
        starts = [self._reserve(grant) for grant in schedule.grants]
        for grant, start in zip(schedule.grants, starts, strict=True):
            if grant.request_id in failing:
                self.remove(grant.request_id)
            else:
                self._run(grant, start, rng)
        return schedule

    def _reserve(self, grant: Grant) -> int:
        request = self.requests[grant.request_id]
        start = request.table.reserve(grant.num_tokens + grant.num_guesses)
        self._write(request, start, [GARBAGE] * (grant.num_tokens + grant.num_guesses))
        return start

    def _write(self, request: FakeRequest, start: int, values: Sequence[int]) -> None:
        slots = request.table.slots(start + len(values))[start:]
        for slot, value in zip(slots, values, strict=True):
            self.cache.store[slot] = value

    def _run(self, grant: Grant, start: int, rng: Random) -> None:
        request = self.requests[grant.request_id]
        row = start_row(request.cache_salt)
        if start:
            row = self.cache.store[request.table.slots(start)[-1]]
        for idx in range(grant.num_tokens):
            row = row_after(row, request.tokens[start + idx])
            self._write(request, start + idx, [row])
        self.num_computed += grant.num_tokens
        if start + grant.num_tokens == request.num_tokens:
            self._emit(request, grant, start, row, rng)
        self.cache.prefixes.publish(request.table, request.tokens, request.cache_salt)
        if request.is_finished:
            self.finished.append(request)
            self.remove(request.id)

    def _emit(self, request: FakeRequest, grant: Grant, start: int, row: int, rng: Random) -> None:
        """Accept some of the guessed rows, not always the first ones; then emit one more token."""
        num_left = request.max_num_tokens - request.num_tokens
        num_held = rng.randint(0, min(grant.num_guesses, num_left - 1))
        held = sorted(rng.sample(range(grant.num_guesses), num_held))
        for offset in held:
            request.tokens.append(row % VOCAB)
            row = row_after(row, request.tokens[-1])
            self._write(request, start + grant.num_tokens + offset, [row])
        request.tokens.append(row % VOCAB)
        certain = range(grant.num_tokens)
        request.table.keep(start, (*certain, *(grant.num_tokens + offset for offset in held)))

    def assert_nothing_is_held(self) -> None:
        assert self.scheduler.is_idle
        assert not self.requests
        assert self.cache.pool.num_free == self.cache.pool.num_pages
