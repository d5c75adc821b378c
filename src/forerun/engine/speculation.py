"""Everything that guesses for an engine: drafters by name, and who decides what they spend."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from forerun.drafters import Drafter
from forerun.engine.planner import Ask, Planner
from forerun.engine.pool import Pool
from forerun.engine.request import Request
from forerun.errors import InvalidProposal
from forerun.types import Proposal, Verdict


@dataclass(frozen=True)
class Speculation:
    """A drafter that throws, or answers nonsense, costs a request its speculation and no more."""

    drafters: Mapping[str, Drafter]
    planner: Planner
    pools: tuple[Pool, ...]  # the caches of draft models: admission looks at them, too
    max_nodes: int  # in one proposal
    vocab_size: int

    def begin(self, request: Request) -> None:
        """It has a seat now; it may have had one before."""
        for drafter in self.drafters.values():
            drafter.begin(request)

    def plan(self, requests: Sequence[Request], num_other_tokens: int) -> list[Ask]:
        """What each request spends; nothing for one whose drafter failed."""
        able = [request for request in requests if request.may_speculate]
        asks: Sequence[Ask] = ()
        try:
            asks = self.planner.plan(able, num_other_tokens)
        except Exception as error:  # an offer that throws: nobody can say whose
            self._give_up(able, error)
        found = dict(zip((request.id for request in able), asks, strict=False))
        return [found.get(request.id, Ask()) for request in requests]

    def propose(self, requests: Sequence[Request], asks: Sequence[Ask]) -> list[Proposal]:
        """One proposal per request; drafters are asked once for all who chose them."""
        found = {idx: ask.offered for idx, ask in enumerate(asks) if ask.offered is not None}
        for name in self.drafters:
            chosen = [
                idx
                for idx, ask in enumerate(asks)
                if ask.drafter == name and ask.budget.depth > 0 and idx not in found
            ]
            if chosen:
                answers = self._ask(name, [requests[i] for i in chosen], [asks[i] for i in chosen])
                found |= dict(zip(chosen, answers, strict=True))
        return [
            self._checked(request, found.get(idx), asks[idx])
            for idx, request in enumerate(requests)
        ]

    def commit(self, request: Request, ask: Ask, proposal: Proposal, emitted: Verdict) -> None:
        """Tell every drafter what was emitted, and the one that guessed how far it held."""
        if not request.may_speculate:
            return
        unheard = replace(emitted, path=())
        for name, drafter in self.drafters.items():
            guessed = name == ask.drafter and ask.offered is None
            self._guarded(
                request, partial(drafter.commit, request, emitted if guessed else unheard)
            )
        self.planner.observe_round(request, ask, proposal, emitted)

    def end(self, request: Request) -> None:
        for drafter in self.drafters.values():
            self._guarded(request, partial(drafter.end, request))
        self.planner.end(request)

    def _ask(self, name: str, requests: list[Request], asks: list[Ask]) -> list[Proposal]:
        """All at once; if that throws, one by one, to find out whose request it was."""
        drafter, budgets = self.drafters[name], [ask.budget for ask in asks]
        began = time.perf_counter()
        try:
            answers = drafter.propose(requests, budgets)
        except Exception as error:
            if len(requests) == 1:
                self._give_up(requests, error)
                return [Proposal.empty()]
            return [self._ask(name, [r], [a])[0] for r, a in zip(requests, asks, strict=True)]
        self.planner.observe_draft(name, answers, time.perf_counter() - began)
        return answers

    def _checked(self, request: Request, proposal: Proposal | None, ask: Ask) -> Proposal:
        """The proposal, or none where the drafter answered what it was not asked for."""
        if proposal is None or not len(proposal):
            return Proposal.empty()
        if proposal.depth > ask.budget.depth or len(proposal) > self.max_nodes:
            what = f"{len(proposal)} guesses to depth {proposal.depth}"
        elif max(proposal.tokens) >= self.vocab_size:
            what = f"token {max(proposal.tokens)}, beyond the vocabulary of {self.vocab_size}"
        else:
            return proposal
        self._give_up([request], InvalidProposal(f"{ask.drafter} answered with {what}."))
        return Proposal.empty()

    def _guarded(self, request: Request, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:
            self._give_up([request], error)

    def _give_up(self, requests: Sequence[Request], error: Exception) -> None:
        for request in requests:
            request.may_speculate = False
            request.stats.drafter_failures += 1
        warnings.warn(
            f"a drafter failed ({type(error).__name__}: {error}); "
            f"{len(requests)} request(s) go on without speculation.",
            RuntimeWarning,
            stacklevel=3,
        )
