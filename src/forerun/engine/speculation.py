"""Everything that guesses for an engine: drafters by name, and who decides what they spend."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from forerun.drafters import DraftModel
from forerun.engine.guarded_drafters import GuardedDrafters
from forerun.engine.planner import NO_ASK, Ask, Planner
from forerun.engine.request import Request
from forerun.planning.choice import Company
from forerun.types import Proposal, Verdict

_PLANNER: Final = "planner"  # among those that may fail


@dataclass(frozen=True)
class Speculation:
    """Each request guesses with what it allows: its own drafter, depth and branches, or none."""

    drafters: GuardedDrafters
    planner: Planner
    models: tuple[DraftModel, ...] = ()  # those of its drafters, and of their parts

    def begin(self, request: Request) -> None:
        """It has a seat now; it may have had one before."""
        self.drafters.begin(request)

    def unseat(self, request: Request) -> None:
        """It lost its seat, and with it its rows in the caches of draft models."""
        for model in self.models:
            model.unseat(request.id)

    def plan(self, requests: Sequence[Request], company: Company) -> list[Ask]:
        """What each request spends; nothing where nobody may guess."""
        able = [request for request in requests if any(self.drafters.names_for(request))]
        if len(able) == len(requests):
            return self._plan(able, company) if able else []
        asks = self._plan(able, company.with_idle(len(requests) - len(able))) if able else []
        found = dict(zip((request.id for request in able), asks, strict=True))
        return [found.get(request.id, NO_ASK) for request in requests]

    def _plan(self, requests: Sequence[Request], company: Company) -> list[Ask]:
        try:
            asks = self.planner.plan(requests, company)
        except Exception as error:
            for request in requests:
                self.drafters.give_up(_PLANNER, request, error)
            return [NO_ASK for _ in requests]
        if self.drafters.num_parts > 1:
            return [replace(ask, num_parts=self.drafters.num_parts) for ask in asks]
        return asks

    def propose(self, requests: Sequence[Request], asks: Sequence[Ask]) -> list[Proposal]:
        """One proposal per request; drafters are asked once for all who chose them."""
        found = {idx: ask.offered for idx, ask in enumerate(asks) if ask.offered is not None}
        for name in self.drafters.drafters:
            chosen = [
                idx
                for idx, ask in enumerate(asks)
                if ask.drafter == name and ask.budget.depth > 0 and idx not in found
            ]
            if chosen:
                answers = self._ask(name, [requests[i] for i in chosen], [asks[i] for i in chosen])
                found |= dict(zip(chosen, answers, strict=True))
        return [found.get(idx, Proposal.empty()) for idx in range(len(requests))]

    def commit(self, request: Request, ask: Ask, proposal: Proposal, emitted: Verdict) -> None:
        """Tell every drafter what was emitted, and the one that guessed how far it held."""
        guesser = ask.drafter if ask.offered is None else None
        if self.drafters.commit(request, guesser, emitted):
            observe = partial(self.planner.observe_round, request, ask, proposal, emitted)
            self.drafters.attempt(_PLANNER, request, observe)

    def observe_pass(self, num_tokens: int, num_requests: int, seconds: float) -> None:
        observe = partial(self.planner.observe_pass, num_tokens, num_requests, seconds)
        self.drafters.attempt(_PLANNER, None, observe)

    def observe_step(self, num_requests: int, num_guesses: int, seconds: float) -> None:
        observe = partial(self.planner.observe_step, num_requests, num_guesses, seconds)
        self.drafters.attempt(_PLANNER, None, observe)

    def end(self, request: Request) -> None:
        self.unseat(request)
        self.drafters.end(request)
        self.drafters.attempt(_PLANNER, request, partial(self.planner.end, request))

    def _ask(self, name: str, requests: list[Request], asks: list[Ask]) -> list[Proposal]:
        began = time.perf_counter()
        answers = self.drafters.ask(name, requests, [ask.budget for ask in asks])
        seconds = time.perf_counter() - began
        observe = partial(self.planner.observe_draft, name, answers, seconds)
        self.drafters.attempt(_PLANNER, None, observe)
        return answers
