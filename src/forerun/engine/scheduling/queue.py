"""Requests in the order of their rank."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol


class Schedulable(Protocol):
    """A request as the scheduler sees it: counts, which only the engine changes, at commit."""

    @property
    def id(self) -> int: ...

    @property
    def priority(self) -> int:
        """Smaller runs sooner, as in vLLM; the default is 0."""

    @property
    def num_tokens(self) -> int:
        """Known tokens: the prompt and all that was emitted, also before a preemption."""

    @property
    def num_rows(self) -> int:
        """How many of these have rows in the target's cache."""

    @property
    def max_num_tokens(self) -> int:
        """Prompt plus `max_tokens`."""


def num_behind(request: Schedulable) -> int:
    """How many known tokens the target has not run yet."""
    return request.num_tokens - request.num_rows


@dataclass(frozen=True, order=True)
class Ticket:
    """A request's place in the order, given once and kept through preemption; smaller is sooner."""

    rank: int  # the step of its arrival, shifted by its priority
    arrival_idx: int  # unique
    request: Schedulable = field(compare=False)


class RankedQueue:
    """Tickets in order, in a sorted list: few enough that it costs little next to a pass."""

    def __init__(self) -> None:
        self._tickets: list[Ticket] = []
        self._by_id: dict[int, Ticket] = {}

    def __len__(self) -> int:
        return len(self._tickets)

    def __contains__(self, request_id: int) -> bool:
        return request_id in self._by_id

    def __iter__(self) -> Iterator[Schedulable]:
        """Iterate over the requests as they are now, first in rank first."""
        return iter([ticket.request for ticket in self._tickets])

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple([ticket.request.id for ticket in self._tickets])

    @property
    def first(self) -> Schedulable:
        return self._tickets[0].request

    @property
    def last(self) -> Schedulable:
        return self._tickets[-1].request

    def add(self, ticket: Ticket) -> None:
        assert ticket.request.id not in self._by_id, ticket.request.id
        insort(self._tickets, ticket)
        self._by_id[ticket.request.id] = ticket

    def remove(self, request_id: int) -> Ticket:
        ticket = self._by_id.pop(request_id)
        del self._tickets[bisect_left(self._tickets, ticket)]
        return ticket
