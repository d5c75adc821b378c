"""What is believed about each drafter, for each request and for those still to come."""

from __future__ import annotations

from collections.abc import Sequence

from forerun.planning.acceptance_estimate import AcceptanceEstimate, Words
from forerun.planning.open_offers import OpenOffers
from forerun.planning.shared_acceptance import SharedAcceptance


class Beliefs:
    """An estimate per request and drafter; a new one starts from what all requests have taught."""

    def __init__(self) -> None:
        self._shared: dict[str, SharedAcceptance] = {}
        self._own: dict[int, dict[str, AcceptanceEstimate]] = {}
        self._offers = OpenOffers()

    def of(self, request: int, drafter: str) -> AcceptanceEstimate:
        try:
            return self._own[request][drafter]
        except KeyError:
            estimate = AcceptanceEstimate(self.shared(drafter))
            return self._own.setdefault(request, {}).setdefault(drafter, estimate)

    def shared(self, drafter: str) -> SharedAcceptance:
        return self._shared.setdefault(drafter, SharedAcceptance())

    def observe(
        self,
        request: int,
        drafter: str,
        num_guessed: int,
        num_matched: int,
        num_known: int = 0,
        branch: int = 0,
        words: Words = (),
    ) -> None:
        """See `AcceptanceEstimate.observe`."""
        self.of(request, drafter).observe(num_guessed, num_matched, num_known, branch, words)

    def offer(
        self, request: int, drafter: str, branches: Sequence[Sequence[int]], words: Words
    ) -> None:
        self._offers.add(request, drafter, branches, words)

    def words(self, request: int, drafter: str) -> Words:
        """What the drafter says of the guesses it offers now."""
        return self._offers.words(request, drafter)

    def is_offering(self, request: int, drafter: str) -> bool:
        return self._offers.has(request, drafter)

    def follow(self, request: int, tokens: Sequence[int], used: str | None) -> None:
        """Score every open offer of the request against what was emitted."""
        for drafter in self._offers.drafters(request):
            scores = self._offers.follow(request, drafter, tokens, was_used=drafter == used)
            if scores:
                estimate = self.of(request, drafter)
                for score in scores:
                    estimate.observe(*score)

    @property
    def requests(self) -> set[int]:
        """Whom it remembers."""
        return self._own.keys() | self._offers.requests

    def end(self, request: int) -> None:
        self._own.pop(request, None)
        self._offers.end(request)
