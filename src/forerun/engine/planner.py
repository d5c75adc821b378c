"""How much each request spends on guesses: by rule, or by what has paid so far."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final, Protocol

from forerun.drafters import Budget
from forerun.drafters.prediction import PREDICTION
from forerun.engine.guarded_drafters import GuardedDrafters
from forerun.engine.lookout import Lookout
from forerun.engine.request import Request
from forerun.planning.choice import NOT_LOOKED, Candidate, Choice, Company, Reason, Standing
from forerun.planning.controller import Controller
from forerun.types import ROOT, Proposal, Verdict

NOTHING: Final = Budget(0)

Offers = dict[tuple[int, str | None], Proposal]  # by request id and drafter


@dataclass(frozen=True)
class Ask:
    """What a request spends this round, and on whom.

    `offered` is what the drafter said already; then it is not asked again. A drafter that merges
    the trees of several has `num_parts` of them.
    """

    drafter: str | None = None
    budget: Budget = NOTHING
    offered: Proposal | None = None
    choice: Choice | None = None
    num_parts: int = 1

    @property
    def num_nodes(self) -> int:
        """Guesses that this may cost."""
        if self.offered is not None:
            return len(self.offered)
        return self.budget.depth * self.budget.num_branches * self.num_parts

    def within(self, num_nodes: int) -> Ask:
        """The same with at most so many guesses."""
        if num_nodes >= self.num_nodes:
            return self
        num_nodes //= self.num_parts
        if num_nodes == 0:
            return replace(self, drafter=None, budget=NOTHING, offered=None)
        num_branches = min(self.budget.num_branches, num_nodes)
        budget = replace(self.budget, depth=num_nodes // num_branches, num_branches=num_branches)
        offered = self.offered and self.offered.pruned(budget.depth, num_branches)
        return replace(self, budget=budget, offered=offered)


NO_ASK: Final = Ask()
_NOT_LOOKED: Final = Ask(choice=NOT_LOOKED)  # shared: free
_UNWEIGHED: Final = (Reason.SILENT, Reason.NO_ROOM)


class Planner(Protocol):
    """Sees committed history and costs, never what was drawn this round."""

    def plan(self, requests: Sequence[Request], company: Company) -> list[Ask]:
        """One ask per request."""
        ...

    def observe_draft(
        self, drafter: str, proposals: Sequence[Proposal], seconds: float
    ) -> None: ...

    def observe_pass(self, num_tokens: int, num_requests: int, seconds: float) -> None: ...

    def observe_step(self, num_requests: int, num_guesses: int, seconds: float) -> None:
        """A whole step took `seconds`, its pass and its drafters included."""
        ...

    def observe_round(
        self, request: Request, ask: Ask, proposal: Proposal, emitted: Verdict
    ) -> None: ...

    def end(self, request: Request) -> None: ...


@dataclass(frozen=True)
class FixedDepth:
    """Always the same depth, as far as the answer goes on and the request allows.

    `drafter` guesses where a request names no other and brings no prediction.
    """

    drafter: str
    depth: int
    num_branches: int

    def plan(self, requests: Sequence[Request], company: Company) -> list[Ask]:  # noqa: ARG002
        ceiling = Budget(self.depth, self.num_branches)
        return [self._ask(request, budget_for(request, ceiling)) for request in requests]

    def _ask(self, request: Request, budget: Budget) -> Ask:
        """Nobody expects anything here, so the choice says who, how deep and why."""
        own = PREDICTION if request.may_ask(PREDICTION) else self.drafter
        drafter = request.options.speculation.drafter or own
        reason = Reason.FIXED if budget.depth else Reason.NO_ROOM
        choice = Choice(drafter, budget.depth, budget.num_branches, 0.0, 0.0, reason)
        return Ask(drafter, budget, choice=choice)

    def observe_draft(self, drafter: str, proposals: Sequence[Proposal], seconds: float) -> None:
        """Costs change nothing here."""

    def observe_pass(self, num_tokens: int, num_requests: int, seconds: float) -> None:
        """Costs change nothing here."""

    def observe_step(self, num_requests: int, num_guesses: int, seconds: float) -> None:
        """Costs change nothing here."""

    def observe_round(
        self, request: Request, ask: Ask, proposal: Proposal, emitted: Verdict
    ) -> None:
        """Outcomes change nothing here."""

    def end(self, request: Request) -> None:
        """Nothing was kept."""


class Adaptive:
    """Asks the controller, and tells it what was measured in the rounds that it weighed.

    A drafter that `offers` is heard in every round that is looked at while that is cheap, so what
    it would have guessed is scored even when nothing is spent on it.
    """

    def __init__(self, controller: Controller, drafters: GuardedDrafters, budget: Budget) -> None:
        self._controller = controller
        self._drafters = drafters
        self._ceiling = budget
        self._lookout = Lookout()
        self._seconds = 0.0  # of this step's pass and drafters
        self._is_watching = False

    def plan(self, requests: Sequence[Request], company: Company) -> list[Ask]:
        self._seconds = 0.0
        due = [request for request in requests if self._lookout.is_due(request.id)]
        self._is_watching = False
        if not due:
            return [_NOT_LOOKED] * len(requests)
        began = time.perf_counter()
        company = company.with_idle(len(requests) - len(due))
        asks = dict(zip((request.id for request in due), self._look(due, company), strict=True))
        seconds = (time.perf_counter() - began) / len(due)
        cost = self._controller.plain_tokens_in(seconds, len(requests))
        for request_id, ask in asks.items():
            if ask.choice and ask.choice.reason is not Reason.BASELINE:
                self._lookout.looked(request_id, ask.choice.gain, cost)
        self._is_watching = self._controller.is_plain_pass_due or any(
            ask.choice and ask.choice.reason not in _UNWEIGHED for ask in asks.values()
        )
        return [asks.get(request.id, _NOT_LOOKED) for request in requests]

    def _look(self, requests: Sequence[Request], company: Company) -> list[Ask]:
        least_chance = self._controller.least_chance(len(requests), company)
        ceiling = replace(self._ceiling, least_chance=least_chance)
        budgets = [budget_for(request, ceiling) for request in requests]
        offers = self._offers(requests, budgets)
        standings = [
            Standing(
                request.id, budget.depth, self._candidates(request, offers), budget.num_branches
            )
            for request, budget in zip(requests, budgets, strict=True)
        ]
        choices = self._controller.plan(standings, company)
        return [
            _ask(choice, offers.get((request.id, choice.drafter)))
            for request, choice in zip(requests, choices, strict=True)
        ]

    def _candidates(self, request: Request, offers: Offers) -> tuple[Candidate, ...]:
        """Who may guess for a request, and how deep where that is known."""
        found = []
        for name in self._drafters.ready_for(request):
            offer = offers.get((request.id, name))
            num_offered = None if offer is None else offer.depth
            found.append(Candidate(name, num_offered, self._drafters.num_parts))
        return tuple(found)

    def _offers(self, requests: Sequence[Request], budgets: Sequence[Budget]) -> Offers:
        offers: Offers = {}
        for name in self._drafters.offering:
            asked = [idx for idx, request in enumerate(requests) if request.may_ask(name)]
            if not asked or not self._controller.is_cheap(name, len(asked)):
                continue
            able = [requests[idx] for idx in asked]
            began = time.perf_counter()
            answers = self._drafters.ask(name, able, [budgets[idx] for idx in asked])
            self.observe_draft(name, answers, time.perf_counter() - began)
            for request, proposal in zip(able, answers, strict=True):
                self._controller.offered(request.id, name, _chains(proposal), _words(proposal))
                offers[request.id, name] = proposal
        return offers

    def observe_draft(self, drafter: str, proposals: Sequence[Proposal], seconds: float) -> None:
        level_sizes: list[int] = []
        if any(map(len, proposals)):
            sizes = Counter(chain.from_iterable(proposal.tree.depths for proposal in proposals))
            level_sizes = [sizes[depth] for depth in range(1, len(sizes) + 1)]
        self._seconds += seconds
        if level_sizes or drafter in self._drafters.offering:  # else it only read known text
            self._controller.observe_draft(drafter, len(proposals), level_sizes, seconds)

    def observe_pass(self, num_tokens: int, num_requests: int, seconds: float) -> None:
        """Rounds that nobody weighed are to take no time of ours."""
        if self._is_watching:
            self._seconds += seconds
            self._controller.observe_pass(num_tokens, num_requests, seconds)
        else:
            self._controller.skip_pass()

    def observe_step(self, num_requests: int, num_guesses: int, seconds: float) -> None:
        if self._is_watching:
            self._controller.observe_rest(num_requests, num_guesses, seconds - self._seconds)
            self._is_watching = False

    def observe_round(
        self, request: Request, ask: Ask, proposal: Proposal, emitted: Verdict
    ) -> None:
        if ask.drafter is not None and len(proposal):
            branch, num_guessed = _branch_tried(proposal, emitted)
            if self._drafters.num_parts > 1:
                branch = 0  # one of several drafters was right: that is what a merged guess is for
            self._controller.observe_verified(
                request.id, ask.drafter, num_guessed, emitted.num_accepted, branch
            )
        elif (
            ask.drafter is not None
            and ask.budget.depth > 0
            and not self._drafters.keeps_waiting(ask.drafter, request)
        ):
            self._controller.observe_silence(request.id, ask.drafter)
        self._controller.emitted(request.id, emitted.tokens)

    def end(self, request: Request) -> None:
        self._controller.end(request.id)
        self._lookout.end(request.id)


def room(request: Request) -> int:
    """Guesses that still fit: the round emits one token more than it accepts."""
    return max(0, request.num_left - 1)


def budget_for(request: Request, ceiling: Budget) -> Budget:
    """The engine's ceiling, or less: what the request allows, and what its answer has room for."""
    own, depth = request.options.speculation, min(ceiling.depth, room(request))
    if own.num_speculative_tokens is not None:
        depth = min(depth, own.num_speculative_tokens)
    num_branches = min(ceiling.num_branches, own.num_branches or ceiling.num_branches)
    if (depth, num_branches) == (ceiling.depth, ceiling.num_branches):
        return ceiling
    return replace(ceiling, depth=depth, num_branches=num_branches)


def _ask(choice: Choice, offer: Proposal | None) -> Ask:
    if choice.drafter is None or choice.depth == 0:
        return Ask(choice=choice)
    budget = Budget(choice.depth, choice.num_branches)
    offered = None if offer is None else offer.pruned(budget.depth, budget.num_branches)
    return Ask(choice.drafter, budget, offered, choice)


def _chains(proposal: Proposal) -> list[tuple[int, ...]]:
    """The deepest path below each child of the root."""
    if proposal.depth == len(proposal):
        return [proposal.tokens] if proposal.tokens else []
    return [proposal.path_tokens(proposal.tree.deepest(c)) for c in proposal.tree.children(ROOT)]


def _words(proposal: Proposal) -> list[float]:
    """The chances that the drafter gives its first branch, if it gives any."""
    if not proposal.draws or proposal.draws[0].chance is None:
        return []
    words = {draw.node: draw.chance for draw in proposal.draws if draw.chance is not None}
    if len(words) < len(proposal):
        return []
    if proposal.depth == len(proposal):
        return list(words.values())
    return [words[node] for node in proposal.tree.path_to(proposal.tree.deepest(0))]


def _branch_tried(proposal: Proposal, emitted: Verdict) -> tuple[int, int]:
    """(which child of the root, how many guesses were judged along it)."""
    children = proposal.tree.children(ROOT)
    branch = children.index(emitted.path[0]) if emitted.path else len(children) - 1
    if emitted.final is None:  # the answer ended inside the path
        return branch, emitted.num_accepted
    return branch, proposal.tree.depths[proposal.tree.deepest(children[branch])]
