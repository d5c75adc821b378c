"""The next pass, while the scheduler builds it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from forerun.engine.scheduling.pool import PagePromises, Pool
from forerun.engine.scheduling.queue import Schedulable, num_behind


class Grant(NamedTuple):
    """One request's part of the next pass."""

    request_id: int
    num_tokens: int  # known tokens: a chunk of the prompt, or the last emitted token
    num_guesses: int = 0  # at most


class NextPass:
    """The tokens and pages that are left, and what was granted so far."""

    def __init__(self, num_tokens: int, target: Pool) -> None:
        self.num_tokens = num_tokens
        self.grants: dict[int, Grant] = {}
        self._target = PagePromises(target)

    def grant(self, request: Schedulable, num_tokens: int) -> int:
        """Grant `num_tokens` known tokens, or as many as there are pages for; return how many.

        With 0, the request has no part in the pass.
        """
        assert 0 < num_tokens <= self.num_tokens, (request.id, num_tokens, self.num_tokens)
        num_granted = self._target.promise(request.id, request.num_rows, num_tokens)
        if num_granted:
            self.grants[request.id] = Grant(request.id, num_granted)
            self.num_tokens -= num_granted
        return num_granted

    def share_guesses(self, running: Sequence[Schedulable], wanted: Mapping[int, int]) -> None:
        """Share the tokens that are left evenly as guesses, among requests that run one token."""
        able = (r for r in running if r.id in wanted and r.id in self.grants)
        guessing = [r for r in able if num_behind(r) == 1]
        shares = share_evenly(self.num_tokens, [wanted[r.id] for r in guessing])
        for request, share in zip(guessing, shares, strict=True):
            num_guesses = self._target.promise(request.id, request.num_rows + 1, share)
            if num_guesses:
                self.grants[request.id] = Grant(request.id, 1, num_guesses)
                self.num_tokens -= num_guesses


def share_evenly(total: int, wanted: Sequence[int]) -> list[int]:
    """Split `total` into shares as even as can be, none of them larger than what is wanted."""
    if sum(wanted) <= total:
        return list(wanted)
    shares, num_open = [0] * len(wanted), len(wanted)
    for idx in sorted(range(len(wanted)), key=lambda idx: wanted[idx]):
        shares[idx] = min(wanted[idx], total // num_open)
        total -= shares[idx]
        num_open -= 1
    return shares
