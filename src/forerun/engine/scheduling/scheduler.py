"""Which requests run in the next pass, and how many tokens of each: integers only, no arrays.

    wait ──admit──▶ run ──remove──▶ gone
     ▲               │
     └───preempt─────┘        pages are given up; tokens are kept and computed again

Requests are ranked once, by arrival and priority, and served in that order:

1. every running request gets its next tokens, decodes before prompts;
2. if pages are short, the last in rank is preempted;
3. waiting requests are admitted, none before one that ranks higher;
4. what is left of the pass is shared among guesses, which never displace anything.

The first in rank is never preempted and advances in every step, and no request is admitted past
it. So every running request ends, every waiting one becomes the first in rank, and none waits for
ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import NamedTuple

from forerun.engine.scheduling.limits import SchedulerLimits
from forerun.engine.scheduling.next_pass import Grant, NextPass
from forerun.engine.scheduling.pool import Pool
from forerun.engine.scheduling.queue import RankedQueue, Schedulable, Ticket, num_behind


class Schedule(NamedTuple):
    """The next pass, and the ids of the requests that were admitted and preempted for it."""

    grants: tuple[Grant, ...]
    admitted: tuple[int, ...]
    preempted: tuple[int, ...]

    @property
    def num_tokens(self) -> int:
        return sum(grant.num_tokens + grant.num_guesses for grant in self.grants)


class Scheduler:
    """Decides by the target's cache alone. Draft models admit requests to their own caches, where
    a lack of room costs guesses and stops no request."""

    def __init__(self, limits: SchedulerLimits, target: Pool) -> None:
        self._limits = limits
        self._target = target
        self._waiting = RankedQueue()
        self._running = RankedQueue()
        self._arrivals = count()
        self._step_idx = 0

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def running(self) -> tuple[int, ...]:
        """The ids of the running requests, which hold pages; first in rank first."""
        return self._running.ids

    @property
    def is_idle(self) -> bool:
        return not self._waiting and not self._running

    def check(self, request: Schedulable) -> None:
        """Raise `RequestTooLarge` if the request could never run; change nothing."""
        self._limits.check(request, self._target)

    def add(self, request: Schedulable) -> None:
        """Add a request to those that wait; raises what `check` raises."""
        self.check(request)
        rank = self._step_idx + request.priority * self._limits.ageing
        self._waiting.add(Ticket(rank, next(self._arrivals), request))

    def remove(self, request_id: int) -> bool:
        """Remove a request, running or waiting; False if it is not here."""
        if request_id in self._waiting:
            self._waiting.remove(request_id)
        elif request_id in self._running:
            self._leave(request_id)
        else:
            return False
        return True

    def schedule(self, wanted: Mapping[int, int]) -> Schedule:
        """Return the next pass; `wanted` are guesses by request id. Attaches and releases rows.

        There are pages for the rows of all grants, as long as nothing else takes any before these
        rows are reserved.
        """
        self._step_idx += 1
        batch = NextPass(self._limits.max_num_batched_tokens, self._target)
        preempted = self._advance_running(batch)
        admitted = [] if preempted else self._admit(batch)
        if wanted:
            batch.share_guesses(list(self._running), wanted)
        return Schedule(tuple(batch.grants.values()), tuple(admitted), tuple(preempted))

    def _advance_running(self, batch: NextPass) -> list[int]:
        """Grant running requests their next tokens; return the ids of those preempted for it,
        always the last in rank."""
        preempted: list[int] = []
        running = [(request, num_behind(request)) for request in self._running]
        num_decodes = sum([num == 1 for _, num in running])
        num_prompt_tokens = batch.num_tokens - num_decodes
        for request, num in running:
            if request.id in preempted:
                break
            is_decode = num == 1
            num_tokens = 1 if is_decode else min(num, num_prompt_tokens)
            if num_tokens == 0:
                continue
            while not (num_granted := batch.grant(request, num_tokens)):
                preempted.append(self._preempt_last())
                if request.id in preempted:
                    break
            num_prompt_tokens -= 0 if is_decode else num_granted
        return preempted

    def _preempt_last(self) -> int:
        """Preempt the running request that is last in rank; return its id."""
        victim = self._running.last
        self._waiting.add(self._leave(victim.id))
        return victim.id

    def _leave(self, request_id: int) -> Ticket:
        ticket = self._running.remove(request_id)
        self._target.release(request_id)
        return ticket

    def _admit(self, batch: NextPass) -> list[int]:
        admitted = []
        while self._waiting and batch.num_tokens and self._has_room(self._waiting.first):
            ticket = self._waiting.remove(self._waiting.first.id)
            self._running.add(ticket)
            self._target.attach(ticket.request.id)
            num_tokens = min(num_behind(ticket.request), batch.num_tokens)
            num_granted = batch.grant(ticket.request, num_tokens)
            assert num_granted, (ticket.request.id, num_tokens)
            admitted.append(ticket.request.id)
        return admitted

    def _has_room(self, newcomer: Schedulable) -> bool:
        """Whether all known tokens of `newcomer` fit beside the running requests, with headroom
        for each of them."""
        if len(self._running) == self._limits.max_num_seqs:
            return False
        num_missing = sum(map(self._num_missing_soon, (*self._running, newcomer)))
        return num_missing <= self._target.num_free

    def _num_missing_soon(self, request: Schedulable) -> int:
        num_rows = min(request.max_num_tokens, request.num_tokens + self._limits.headroom)
        return self._target.num_missing(request.id, num_rows)
