"""Drafters, guarded: one that raises, or returns nonsense, costs a request only its guesses."""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

import numpy as np

from forerun.drafters import GRAMMAR, Budget, CachedDrafter, Drafter, HintingDrafter, TappedDrafter
from forerun.drafters.base import OneByOne
from forerun.errors import InvalidProposal
from forerun.speculation.request import RequestSpeculation, SpeculativeRequest
from forerun.types import (
    ROOT,
    Acceptance,
    FloatArray,
    Grammar,
    Proposal,
    ProposalBuilder,
    Verdict,
)

_LOG: Final = logging.getLogger("forerun")
_FEW_BEHIND: Final = 8  # hidden states: as many as a usual round leaves to read


def _commit_of(drafter: Drafter) -> object:
    return getattr(type(drafter), "commit", None)


class GuardedDrafters:
    """Drafters by name, each asked only for requests that allow it.

    If a drafter fails, the request goes on without guesses. `failures` counts by drafter, and the
    first failure of each is logged. `num_trees` is how many trees a proposal may merge.
    """

    def __init__(
        self, drafters: Mapping[str, Drafter], vocab_size: int, num_trees: int = 1
    ) -> None:
        self.drafters = drafters
        self.vocab_size = vocab_size
        self.num_trees = num_trees
        self.failures: Counter[str] = Counter()
        self._failed: Counter[int] = Counter()  # how often, by request
        self._picking = [name for name, drafter in drafters.items() if drafter.picks]
        self._cached = {n: d for n, d in drafters.items() if isinstance(d, CachedDrafter)}
        self._shortest = min((d.max_len for d in self._cached.values()), default=sys.maxsize)
        self._tapped = {n: d for n, d in drafters.items() if isinstance(d, TappedDrafter)}
        self._told = {n for n, d in drafters.items() if _commit_of(d) is not OneByOne.commit}
        self._hinting = {n: d for n, d in drafters.items() if isinstance(d, HintingDrafter)}
        self._all = self._names = tuple(drafters)  # `_names`: without those that were put aside
        self._names_for: dict[int, tuple[str, ...]] = {}  # by request, until it ends

    def names_for(self, request: SpeculativeRequest) -> Sequence[str]:
        """The drafters that may guess for a request, and whose context it does not exceed."""
        names = self._kept_for(request)
        num_tokens, cached = len(request.tokens), self._cached
        if num_tokens <= self._shortest:
            return names
        return [n for n in names if n not in cached or num_tokens <= cached[n].max_len]

    def _kept_for(self, request: SpeculativeRequest) -> tuple[str, ...]:
        """The drafters that a request allows, without those left out for it."""
        names = self._names_for.get(request.id)
        if names is None:
            names = self._names_for[request.id] = _allowed(request.speculation, self._names)
        return names

    def ready_for(self, request: SpeculativeRequest) -> Sequence[str]:
        """Those of `names_for` whose caches have room for the request now."""
        names, cached = self.names_for(request), self._cached
        if not cached:
            return names
        return [n for n in names if n not in cached or cached[n].has_room_for(request)]

    def able(
        self, request: SpeculativeRequest, budget: Budget, asleep: Sequence[str] = ()
    ) -> list[str]:
        """The drafters, except those `asleep`, that may have a guess; all that give no hint may."""
        found = list(self.able_in_turn(request, budget, asleep))
        return found if self.names_for(request) else []

    def able_in_turn(
        self, request: SpeculativeRequest, budget: Budget, asleep: Sequence[str] = ()
    ) -> Iterator[str]:
        """As `able`, but a drafter is only asked for its hint when its turn comes. If one fails,
        none follows."""
        for name in self.names_for(request):
            if name in asleep:
                continue
            hinting = self._hinting.get(name)
            try:
                is_able = hinting is None or hinting.may_guess(request, budget)
            except Exception as error:
                self.give_up(name, request, error)
                return
            if is_able:
                yield name

    def is_led(self, request: SpeculativeRequest) -> bool:
        """Whether the request's own grammar has a guess, which it may have at any time."""
        if request.grammar is None:
            return False
        awake = [name for name in self.names_for(request) if name != GRAMMAR]
        return bool(self.able(request, Budget(1), awake))

    def draws_apart(self, request: SpeculativeRequest) -> bool:
        """Whether a device cannot draw a head's guesses in one go for this request, because more
        than noise decides the next token, or because the logits are needed."""
        params = request.params
        is_coupled = params.acceptance is Acceptance.COUPLED
        if not is_coupled or params.changes_logits or params.shows_laws:
            return True
        return bool(params.temperature and params.truncates) or self._is_bound(request)

    def may_join(self, request: SpeculativeRequest) -> bool:
        """Whether a request that `draws_apart` may stop doing so, as its grammar may loosen."""
        return request.grammar is not None and request.grammar.may_loosen(request.output)

    def _is_bound(self, request: SpeculativeRequest) -> bool:
        """Whether the request has a grammar that restricts the next token."""
        if request.grammar is None:
            return False
        try:
            return request.grammar.binds(request.output)
        except Exception as error:
            self.give_up(GRAMMAR, request, error)
            return True

    def put_aside(self, name: str, reason: str) -> None:
        """Stop using a drafter for all requests."""
        self._names = _without(name, self._names)
        self._names_for = {idx: _without(name, kept) for idx, kept in self._names_for.items()}
        _LOG.warning("%s is put aside: %s.", name, reason)

    @property
    def picking(self) -> Sequence[str]:
        """The drafters that pick, which may be asked in every round."""
        return self._picking

    def is_waiting(self, name: str, request: SpeculativeRequest) -> bool:
        """Whether a drafter has no room for the request, or has not read all of it, so that its
        silence says nothing about its guesses."""
        return name in self._cached and self._cached[name].is_waiting(request)

    def num_behind(self, name: str, request: SpeculativeRequest) -> int:
        """How many tokens of the text a drafter reads before its next guess, or 0 if they are few.

        If they are many, the time of the answer says nothing about what guesses cost.
        """
        num = self._tapped[name].num_behind(request) if name in self._tapped else 0
        return num if num > _FEW_BEHIND else 0

    def tapped_for(self, request: SpeculativeRequest) -> Sequence[str]:
        """The request's drafters that tap hidden states."""
        return [name for name in self.names_for(request) if name in self._tapped]

    def leave_out(self, name: str, request: SpeculativeRequest) -> None:
        """Stop using a drafter for this request."""
        self._names_for[request.id] = _without(name, self._kept_for(request))

    def bring_back(self, name: str, request: SpeculativeRequest) -> None:
        """Undo `leave_out`, unless the drafter was put aside or the request had a failure."""
        names = self._kept_for(request)
        if name in self._names and name not in names and not self.num_failures(request):
            self._names_for[request.id] = (*names, name)

    def num_failures(self, request: SpeculativeRequest) -> int:
        return self._failed.get(request.id, 0)

    def begin(self, request: SpeculativeRequest) -> None:
        for name in self.names_for(request):
            self.attempt(name, request, self.drafters[name].begin, request)

    def layers_for(self, requests: Iterable[SpeculativeRequest]) -> tuple[int, ...]:
        """The layers whose hidden states a pass over these requests has to return."""
        if not self._tapped:
            return ()
        names = {name for request in requests for name in self.names_for(request)}
        return _layers_of(tuple(d.layers for name, d in self._tapped.items() if name in names))

    def tapped(
        self, request: SpeculativeRequest, start: int, rows: Mapping[int, FloatArray]
    ) -> None:
        names = self.names_for(request)
        for name, drafter in self._tapped.items():
            if name in names:
                self.attempt(name, request, drafter.tapped, request, start, rows)

    def evict(self, request: SpeculativeRequest) -> None:
        """Free a preempted request's rows in the drafters' caches."""
        for name, drafter in self._cached.items():
            self.attempt(name, request, drafter.evict, request)

    def propose(
        self, name: str, requests: Sequence[SpeculativeRequest], budgets: Sequence[Budget]
    ) -> list[Proposal]:
        """Ask a drafter for proposals, for all requests at once; if that fails, one by one, to find
        out which request is at fault."""
        try:
            answers = self.drafters[name].propose(requests, budgets)
            if len(answers) != len(requests):
                raise InvalidProposal(f"{len(answers)} proposals for {len(requests)} requests.")
        except Exception as error:
            if len(requests) == 1:
                self.give_up(name, requests[0], error)
                return [Proposal.empty()]
            pairs = zip(requests, budgets, strict=True)
            return [self.propose(name, [request], [budget])[0] for request, budget in pairs]
        return [
            self._checked(name, request, budget, answer)
            for request, budget, answer in zip(requests, budgets, answers, strict=True)
        ]

    def commit(self, request: SpeculativeRequest, guesser: str | None, emitted: Verdict) -> bool:
        """Tell all drafters what was emitted, and `guesser` which of its guesses were accepted.

        Returns False if no drafter may guess for the request.
        """
        names = self.names_for(request)
        for name in names if self._told else ():
            if name in self._told:
                is_own = name == guesser or not emitted.path
                verdict = emitted if is_own else Verdict((), emitted.tokens, emitted.final)
                self.attempt(name, request, self.drafters[name].commit, request, verdict)
        return bool(names)

    def in_use(self) -> dict[str, int]:
        return {
            "draft_pages": sum(d.num_pages_in_use() for d in self._cached.values()),
            "drafter_entries": sum(d.num_requests for d in self.drafters.values()),
            "failed_requests": len(self._failed),
        }

    def end(self, request: SpeculativeRequest) -> int:
        """Make all drafters forget a request; return how many failures it had."""
        for name in _allowed(request.speculation, self._all):
            self.attempt(name, request, self.drafters[name].end, request)
        self._names_for.pop(request.id, None)
        return self._failed.pop(request.id, 0)

    def _checked(
        self, name: str, request: SpeculativeRequest, budget: Budget, answer: object
    ) -> Proposal:
        """Return a drafter's answer if it is a valid proposal within the budget, else an empty one,
        and without picked guesses that the grammar rules out."""
        if isinstance(answer, Proposal) and not len(answer):
            return answer
        try:  # the request's grammar may fail as well
            proposal = checked_proposal(answer, budget, self.num_trees, self.vocab_size)
            if name not in self._picking:
                return proposal
            if any(draw.probs_q is not None for draw in proposal.draws):
                raise InvalidProposal("it picks, so its guesses must not be drawn.")
            return (
                proposal
                if request.grammar is None
                else _fitting(proposal, request.grammar, request.output)
            )
        except Exception as error:
            self.give_up(name, request, error)
            return Proposal.empty()

    def attempt(
        self,
        name: str,
        request: SpeculativeRequest | None,
        call: Callable[..., None],
        *args: object,
    ) -> None:
        """Make a call of the drafter `name` that may fail, for one request or for all (None)."""
        try:
            call(*args)
        except Exception as error:
            self.give_up(name, request, error)

    def give_up(self, name: str, request: SpeculativeRequest | None, error: Exception) -> None:
        """Note that `name` failed this request, which goes on without guesses.

        The first failure is logged. It is no warning, which could be turned into an error and then
        affect other requests.
        """
        if request is not None:
            self._failed[request.id] += 1
            self._names_for[request.id] = ()
        self.failures[name] += 1
        if self.failures[name] == 1:
            _LOG.warning(
                "speculation failed in %s (%s: %s); %s, and further failures are only counted.",
                name,
                type(error).__name__,
                error,
                "its request goes on without speculation" if request else "nobody is the worse",
            )


@lru_cache(maxsize=64)
def _allowed(speculation: RequestSpeculation, names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(filter(speculation.allows, names))


def _without(name: str, names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(other for other in names if other != name)


@lru_cache(maxsize=64)
def _layers_of(several: tuple[tuple[int, ...], ...]) -> tuple[int, ...]:
    return tuple(sorted(set().union(*several)))


def _fitting(proposal: Proposal, grammar: Grammar, output: Sequence[int]) -> Proposal:
    """Return picked guesses without those that a grammar rules out, as it never accepts them."""
    if proposal.tree.is_chain:
        return proposal.pruned(grammar.num_fitting(output, proposal.tokens), num_branches=1)
    builder, kept = ProposalBuilder(), {ROOT: ROOT}
    for draw in proposal.draws:
        parent, path = proposal.tree.parents[draw.node], proposal.path_tokens(draw.node)
        if parent in kept and grammar.num_fitting(output, path) == len(path):
            kept[draw.node] = builder.add(kept[parent], path[-1], chance=draw.chance)
    return builder.build()


def checked_proposal(answer: object, budget: Budget, num_trees: int, vocab_size: int) -> Proposal:
    """Return `answer` if it is a proposal within the budget that the target can score, else raise.

    Trees need no check: they are valid by construction.
    """
    if not isinstance(answer, Proposal):
        raise InvalidProposal(f"it answered with {type(answer).__name__} instead of a proposal.")
    if answer.depth > budget.depth or len(answer) > budget.depth * budget.num_branches * num_trees:
        raise InvalidProposal(
            f"it answered with {len(answer)} guesses to depth {answer.depth}, and was asked for "
            f"{budget.num_branches} branches of {budget.depth}."
        )
    for token in answer.tokens:
        if not isinstance(token, (int, np.integer)) or not 0 <= token < vocab_size:
            raise InvalidProposal(f"it guessed {token!r}; ids are 0 … {vocab_size - 1}.")
    for draw in answer.draws:
        if draw.probs_q is not None and len(draw.probs_q) != vocab_size:
            raise InvalidProposal(f"its q must have an entry for each of {vocab_size} tokens.")
    return answer
