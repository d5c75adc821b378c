"""Drafters that cannot hurt: one that throws, or answers nonsense, costs speculation alone."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import numpy as np

from forerun.drafters import Budget, Drafter, DraftModel
from forerun.engine.request import Request
from forerun.errors import InvalidProposal
from forerun.types import Proposal, Verdict

_LOG: Final = logging.getLogger("forerun")


@dataclass(frozen=True)
class GuardedDrafters:
    """Drafters by name, each asked only for requests that allow it.

    Where one fails a request, that request goes on without guesses; `failures` counts by drafter,
    and the first failure of each is logged.
    """

    drafters: Mapping[str, Drafter]
    vocab_size: int
    num_parts: int = 1  # trees that one proposal may merge
    models: Mapping[str, DraftModel] = field(default_factory=dict)  # among them
    failures: Counter[str] = field(default_factory=Counter)

    @property
    def offering(self) -> Iterator[str]:
        """Those that may be asked every round."""
        return (name for name, drafter in self.drafters.items() if drafter.offers)

    def names_for(self, request: Request) -> Iterator[str]:
        """Those that may guess for it, and see that far."""
        num_tokens = len(request.tokens)
        for name in self.drafters:
            model = self.models.get(name)
            if request.may_ask(name) and (model is None or num_tokens <= model.max_len):
                yield name

    def ready_for(self, request: Request) -> Iterator[str]:
        """Of these, those that have room for it now."""
        for name in self.names_for(request):
            model = self.models.get(name)
            if model is None or model.has_room_for(request):
                yield name

    def keeps_waiting(self, name: str, request: Request) -> bool:
        """Whether its silence says nothing about its guesses."""
        return name in self.models and self.models[name].keeps_waiting(request)

    def begin(self, request: Request) -> None:
        for name in self.names_for(request):
            self.attempt(name, request, partial(self.drafters[name].begin, request))

    def ask(
        self, name: str, requests: Sequence[Request], budgets: Sequence[Budget]
    ) -> list[Proposal]:
        """All at once; if that throws, one by one, to find out whose request it was."""
        try:
            answers = self.drafters[name].propose(requests, budgets)
            if len(answers) != len(requests):
                raise InvalidProposal(f"{len(answers)} proposals for {len(requests)} requests.")
        except Exception as error:
            if len(requests) == 1:
                self.give_up(name, requests[0], error)
                return [Proposal.empty()]
            pairs = zip(requests, budgets, strict=True)
            return [self.ask(name, [request], [budget])[0] for request, budget in pairs]
        return [
            self._checked(name, request, budget, answer)
            for request, budget, answer in zip(requests, budgets, answers, strict=True)
        ]

    def commit(self, request: Request, guesser: str | None, emitted: Verdict) -> bool:
        """All hear what was emitted, and `guesser` how far its guesses held; False if nobody may
        guess for the request."""
        unheard = Verdict((), emitted.tokens, emitted.final) if emitted.path else emitted
        names = list(self.names_for(request))
        for name in names:
            verdict = emitted if name == guesser else unheard
            self.attempt(name, request, partial(self.drafters[name].commit, request, verdict))
        return bool(names)

    def end(self, request: Request) -> None:
        """Forgotten by all that may ever have heard of it."""
        for name, drafter in self.drafters.items():
            if request.options.speculation.allows(name):
                self.attempt(name, request, partial(drafter.end, request))

    def _checked(self, name: str, request: Request, budget: Budget, answer: object) -> Proposal:
        """The answer, if it is what was asked for."""
        if isinstance(answer, Proposal) and not len(answer):
            return answer
        try:
            proposal = checked_proposal(answer, budget, self.num_parts, self.vocab_size)
            if self.drafters[name].offers and any(d.probs_q is not None for d in proposal.draws):
                raise InvalidProposal("it offers, so its guesses must be picked and not drawn.")
            return proposal
        except InvalidProposal as error:
            self.give_up(name, request, error)
            return Proposal.empty()

    def attempt(self, name: str, request: Request | None, call: Callable[[], None]) -> None:
        """What `name` does for one request, or for all (None), may fail."""
        try:
            call()
        except Exception as error:
            self.give_up(name, request, error)

    def give_up(self, name: str, request: Request | None, error: Exception) -> None:
        """`name` failed this request, which goes on without guesses. The first time it is logged:
        a warning could be turned into an error, and others would suffer."""
        if request is not None:
            request.drafter_failed = True
            request.stats.drafter_failures += 1
        self.failures[name] += 1
        if self.failures[name] == 1:
            _LOG.warning(
                "the drafter %s failed (%s: %s); %s, and further failures are only counted.",
                name,
                type(error).__name__,
                error,
                "its request goes on without speculation" if request else "nobody is the worse",
            )


def checked_proposal(answer: object, budget: Budget, num_parts: int, vocab_size: int) -> Proposal:
    """A proposal that the target can score; trees are sound by construction."""
    if not isinstance(answer, Proposal):
        raise InvalidProposal(f"it answered with {type(answer).__name__} instead of a proposal.")
    if answer.depth > budget.depth or len(answer) > budget.depth * budget.num_branches * num_parts:
        raise InvalidProposal(
            f"it answered with {len(answer)} guesses to depth {answer.depth}, and was asked for "
            f"{budget.num_branches} branches of {budget.depth}."
        )
    for token in answer.tokens:
        if not isinstance(token, int | np.integer) or not 0 <= token < vocab_size:
            raise InvalidProposal(f"it guessed {token!r}; ids are 0 … {vocab_size - 1}.")
    if any(draw.probs_q is not None and len(draw.probs_q) != vocab_size for draw in answer.draws):
        raise InvalidProposal(f"its q must have an entry for each of {vocab_size} tokens.")
    return answer
