"""What is believed about each drafter, for each request and for those still to come."""

from __future__ import annotations

from collections.abc import Sequence

from forerun.planning.acceptance_estimate import AcceptanceEstimate
from forerun.planning.open_offers import OpenOffers


class Beliefs:
    """An estimate per request and drafter; a new one starts from what all requests have taught."""

    def __init__(self) -> None:
        self._shared: dict[str, AcceptanceEstimate] = {}
        self._own: dict[int, dict[str, AcceptanceEstimate]] = {}
        self._offers = OpenOffers()
        self._num_unseen: dict[tuple[int, str], int] = {}

    def of(self, request: int, drafter: str) -> AcceptanceEstimate:
        own = self._own.setdefault(request, {})
        if drafter not in own:
            own[drafter] = AcceptanceEstimate(self.shared(drafter))
        return own[drafter]

    def shared(self, drafter: str) -> AcceptanceEstimate:
        return self._shared.setdefault(drafter, AcceptanceEstimate())

    def num_unseen(self, request: int, drafter: str) -> int:
        """Rounds since something was last learnt about this pair."""
        return self._num_unseen.get((request, drafter), 0)

    def age(self, request: int, drafter: str) -> None:
        """A round begins; if it teaches nothing, what is known is one round older."""
        self._num_unseen[request, drafter] = self.num_unseen(request, drafter) + 1
        if self._num_unseen[request, drafter] > 1:
            self.of(request, drafter).age()

    def observe(
        self,
        request: int,
        drafter: str,
        num_guessed: int,
        num_matched: int,
        num_known: int = 0,
        branch: int = 0,
    ) -> None:
        """See `AcceptanceEstimate.observe`."""
        if num_guessed > num_known:
            self._num_unseen[request, drafter] = 0
        self.shared(drafter).observe(num_guessed, num_matched, num_known, branch)
        self.of(request, drafter).observe(num_guessed, num_matched, num_known, branch)

    def offer(self, request: int, drafter: str, branches: Sequence[Sequence[int]]) -> None:
        self._offers.add(request, drafter, branches)

    def is_offering(self, request: int, drafter: str) -> bool:
        return drafter in self._offers.drafters(request)

    def follow(self, request: int, tokens: Sequence[int], used: str | None) -> None:
        """Score every open offer of the request against what was emitted."""
        for drafter in self._offers.drafters(request):
            score = self._offers.follow(request, drafter, tokens, was_used=drafter == used)
            if score is not None:
                self.observe(
                    request,
                    drafter,
                    score.num_guessed,
                    score.num_matched,
                    score.num_known,
                    score.branch,
                )

    def end(self, request: int) -> None:
        for drafter in self._own.pop(request, {}):
            self._num_unseen.pop((request, drafter), None)
        self._offers.end(request)
