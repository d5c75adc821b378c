"""The one object through which a step speculates: drafters, and the controller above them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final, TypeAlias

from forerun.drafters import GRAMMAR, OWN, Budget
from forerun.speculation.alone import is_sure
from forerun.speculation.choice import NO_ROOM, NOT_LOOKED, SILENT, Choice, Reason, Way
from forerun.speculation.controller import Controller
from forerun.speculation.guarded_drafters import GuardedDrafters
from forerun.speculation.heads.card_check import CardCheck
from forerun.speculation.looks import Looks
from forerun.speculation.request import SpeculativeRequest
from forerun.speculation.step_times import StepTimes
from forerun.types import FloatArray, Proposal, Verdict

_CONTROLLER: Final = "controller"  # its name among drafters that failed

Batch: TypeAlias = tuple[int, int]  # requests that decode, and prompt tokens, in the same pass


class Speculation:
    """Chooses drafters for requests, within what each request allows, and asks them for guesses.

    `ceiling` is the most that a request may spend in a round. Without a controller it spends this
    much in every round, on the first drafter that may guess for it: its prediction comes first,
    then its grammar if that has a guess, then the drafter that it names or the engine's first.
    """

    def __init__(
        self, drafters: GuardedDrafters, controller: Controller | None, ceiling: Budget
    ) -> None:
        self.drafters = drafters
        self.controller = controller
        self.ceiling = ceiling
        self.looks = Looks()
        self.depths: dict[str, int] = {}  # of drafters that guess less deep than the ceiling
        self.left_out: dict[str, str] = {}  # drafters that are not used, and why
        self.cards: CardCheck | None = None
        self.is_steady = False  # whether a round begins early if it is like the one before
        # Drafters that give a chance for each guess, if there are only chains: see `_alone`.
        self._simple = frozenset(
            name
            for name, drafter in drafters.drafters.items()
            if ceiling.num_branches == 1 and getattr(drafter, "says_chances", False)
        )

    @property
    def methods(self) -> list[str]:
        """The drafters that a request may name; predictions and grammars guess without a name."""
        return [name for name in self.drafters.drafters if name not in OWN]

    def choose(
        self, requests: Sequence[SpeculativeRequest], num_prompt_tokens: int, times: StepTimes
    ) -> dict[int, Choice]:
        """Return what each request spends, by id, if any drafter may guess for it.

        The same pass also runs `num_prompt_tokens` of other requests. Drafters that pick are asked
        here already, since their guesses may be used in part or not at all.
        """
        for request in requests:
            for name in self.looks.rested(request):
                self.drafters.bring_back(name, request)
        able = [request for request in requests if self.drafters.names_for(request)]
        try:
            if self.controller is None:
                return {request.id: self._fixed(request) for request in able}
            costs, batch = self.controller.costs, (len(requests), num_prompt_tokens)
            lengths = [len(request.tokens) for request in requests]
            costs.context_len = sum(lengths) / max(1, len(lengths))
            costs.is_alone = batch == (1, 0)
            if costs.knows_whole:
                is_apart = self._leave_out_heads(self.controller, requests)
                may_end = all(len(r.output) >= r.params.min_tokens for r in requests)
                costs.is_free = may_end and not is_apart
            return self._weighed(self.controller, able, batch, times)
        except Exception as error:
            for request in able:
                self.drafters.give_up(_CONTROLLER, request, error)
            return {}

    def _fixed(self, request: SpeculativeRequest) -> Choice:
        """Return the choice for a request without a controller, which expects nothing of it."""
        budget = budget_for(request, self.ceiling, is_steady=self.is_steady)
        if budget.depth == 0:
            return NO_ROOM
        names = self.drafters.names_for(request)
        if names[0] == GRAMMAR and len(names) > 1 and not self.drafters.is_led(request):
            names = names[1:]
        drafter = names[0]
        num_trees = self.drafters.num_trees
        return Choice(Reason.FIXED, drafter, budget.depth, budget.num_branches, num_trees)

    def _weighed(
        self,
        controller: Controller,
        requests: Sequence[SpeculativeRequest],
        batch: Batch,
        times: StepTimes,
    ) -> dict[int, Choice]:
        """Choose for requests that are due for a look, or whose grammars have a guess; the rounds
        of others are plain."""
        chosen = {request.id: NOT_LOOKED for request in requests}
        due = [r for r in requests if self.looks.is_due(r.id) or self.drafters.is_led(r)]
        if not due:
            return chosen
        began = times.clock()
        looked = self._look(controller, due, batch, times)
        seconds = times.clock() - began
        times.look_seconds = seconds - sum([answer[-1] for answer in times.drafts])
        cost = seconds / len(due) * batch[0] / controller.costs.plain_seconds(batch[0])
        for request in due:
            choice, names = looked[request.id], self.drafters.names_for(request)
            # Where rounds begin early there is a look in all of them: a plain round in between
            # would wait for the round that was begun, and so would the next round with guesses.
            is_early = any(map(controller.costs.is_whole, names))
            if choice.reason is not Reason.BASELINE and not is_early:
                self.looks.looked(request.id, choice.gain, cost)
        return chosen | looked

    def _look(
        self,
        controller: Controller,
        requests: Sequence[SpeculativeRequest],
        batch: Batch,
        times: StepTimes,
    ) -> dict[int, Choice]:
        """Look for guesses: ask the drafters that pick, unless a glance shows that none has a
        guess, and weigh all ways to guess against each other."""
        if batch == (1, 0) and self._simple.issuperset(self.drafters.names_for(requests[0])):
            choice = self._alone(requests[0], times)
            if choice is not None:
                return {requests[0].id: choice}
        least_chance = controller.costs.least_price(*batch)
        budgets, found = dict[int, Budget](), dict[int, Choice]()
        able, names = [], dict[int, Sequence[str]]()
        for request in requests:
            budget = budget_for(request, self.ceiling, least_chance, is_steady=self.is_steady)
            self._leave_out_readers(controller, request)
            naps = self.looks.asleep(request)
            found[request.id] = SILENT if budget.depth else NO_ROOM
            if batch[0] == 1 and (stay := self._stay(request, budget, naps)):
                return {request.id: stay}
            if budget.depth and (mine := self.drafters.able(request, budget, naps)):
                able.append(request)
                budgets[request.id], names[request.id] = budget, mine
        if not able:
            return found
        picks = self._pick(controller, able, names, budgets, times)
        ways = []
        for request in able:
            budget, own = budgets[request.id], list[Way]()
            for name in self.drafters.ready_for(request):
                if name not in names[request.id]:
                    continue
                pick, most = picks.get((request.id, name)), budget
                if self.depths.get(name, budget.depth) < budget.depth:
                    most = replace(budget, depth=self.depths[name])
                own += controller.ways(request.id, name, most, pick, self.drafters.num_trees)
            ways.append(own)
        num_idle = batch[0] - len(able)
        choices = controller.choose(ways, num_idle=num_idle, num_prompt_tokens=batch[1])
        choices = [
            _deepest(choice, own) if controller.costs.is_whole(choice.drafter) else choice
            for choice, own in zip(choices, ways, strict=True)
        ]
        for request, own, choice in zip(able, ways, choices, strict=True):
            self._weighed_up(controller, request, own, choice)
        return found | {r.id: choice for r, choice in zip(able, choices, strict=True)}

    def _alone(self, request: SpeculativeRequest, times: StepTimes) -> Choice | None:
        """Choose for a single request whose drafters all give chances for their guesses.

        They are asked in turn, up to one that is sure of a long guess. Returns None if one of them
        takes too long to be asked before it is chosen.
        """
        assert self.controller is not None
        costs = self.controller.costs
        least_chance = costs.least_price(1, 0)
        budget = budget_for(request, self.ceiling, least_chance, is_steady=self.is_steady)
        if budget.depth == 0:
            return NO_ROOM
        names: Iterable[str] = self.drafters.able_in_turn(request, budget)
        if not all(costs.is_cheap(name, 1) for name in self.drafters.names_for(request)):
            names = list(names)
            if not all(costs.is_cheap(name, 1) for name in names):
                return None
        picks = []
        for name in names:
            began = times.clock()
            (pick,) = self.drafters.propose(name, [request], [budget])
            times.drafts.append((name, 1, [1] * len(pick.tokens), times.clock() - began))
            if pick.tokens:
                picks.append((name, pick))
            if is_sure(pick, budget.depth):
                break
        if not picks or not self.drafters.names_for(request):  # the latter after a failure
            return SILENT
        return self.controller.choose_alone(picks)

    def _weighed_up(
        self,
        controller: Controller,
        request: SpeculativeRequest,
        ways: Sequence[Way],
        choice: Choice,
    ) -> None:
        """Put drafters that were weighed and not chosen to sleep or to rest.

        A drafter whose rounds begin early stays awake if another drafter was chosen, and rests if
        plain rounds are better, which are then as fast as without it. A head that would sleep for
        long rests as well, so that no hidden states are kept for it.
        """
        asked = {way.drafter for way in ways if way.is_costly}
        early = {n for n in asked if n != choice.drafter and controller.costs.is_whole(n)}
        tapped = self.drafters.tapped_for(request)
        is_early = controller.costs.is_whole(choice.drafter)
        slept = self.looks.weighed(request, asked - early, choice, is_early=is_early)
        for name, num_rounds in slept:
            if name in tapped:
                self._rest(request, name, num_rounds)
        for name in early if choice.drafter is None else ():
            self._rest(request, name)

    def _rest(self, request: SpeculativeRequest, name: str, *num_rounds: int) -> None:
        self.looks.rest(request, name, *num_rounds)
        self.drafters.leave_out(name, request)

    def _leave_out_heads(
        self, controller: Controller, requests: Iterable[SpeculativeRequest]
    ) -> bool:
        """Leave out heads that take too long for requests that draw apart until they end.

        Returns whether any of the requests draws apart at present: see `draws_apart`.
        """
        apart = [request for request in requests if self.drafters.draws_apart(request)]
        for request in apart:
            tapped = () if self.drafters.may_join(request) else self.drafters.tapped_for(request)
            for name in tapped:
                if not controller.costs.may_draw_apart(name):
                    self.drafters.leave_out(name, request)
        return bool(apart)

    def _leave_out_readers(self, controller: Controller, request: SpeculativeRequest) -> None:
        """Leave out heads that would have to read so much of the text first that guesses could not
        make up for it. It only becomes more, so they are left out until the request ends."""
        for name in self.drafters.tapped_for(request):
            num_rows = self.drafters.num_behind(name, request)
            if num_rows and not controller.costs.may_read(name, num_rows, request.num_left):
                self.drafters.leave_out(name, request)

    def _stay(
        self, request: SpeculativeRequest, budget: Budget, naps: Sequence[str]
    ) -> Choice | None:
        """Return the choice that stays, if its drafter may have a guess and no other one may."""
        stay = self.looks.stay(request)
        name = stay.drafter if stay and budget.depth else None
        if stay is None or name is None or name not in self.drafters.names_for(request):
            return None
        others = [other for other in self.drafters.names_for(request) if other != name]
        able = self.drafters.able
        if able(request, budget, (*naps, name)) or not able(request, budget, others):
            return None
        return stay.within(budget.depth * stay.num_branches * stay.num_trees)

    def _pick(
        self,
        controller: Controller,
        requests: Sequence[SpeculativeRequest],
        names: Mapping[int, Sequence[str]],
        budgets: Mapping[int, Budget],
        times: StepTimes,
    ) -> dict[tuple[int, str], Proposal]:
        """Ask cheap drafters that pick; return their guesses by request id and drafter.

        The guesses are weighed, and judged by the text even if they are not used. `names` are the
        drafters that may have a guess, by request id.
        """
        picks: dict[tuple[int, str], Proposal] = {}
        for name in self.drafters.picking:
            asked = [r for r in requests if name in names[r.id]]
            if asked and controller.costs.is_cheap(name, len(asked)):
                answers = self._propose(name, asked, [budgets[r.id] for r in asked], times)
                picks |= {(r.id, name): pick for r, pick in zip(asked, answers, strict=True)}
        return picks

    def draft(
        self,
        requests: Sequence[SpeculativeRequest],
        choices: Sequence[Choice],
        times: StepTimes,
    ) -> list[Proposal]:
        """Return one proposal per request: its pick, or what its chosen drafter guesses now. Each
        drafter is asked once, for all of its requests."""
        proposals = [choice.pick or Proposal.empty() for choice in choices]
        asked: dict[str, list[int]] = {}
        for idx, choice in enumerate(choices):
            if choice.pick is None and choice.drafter is not None:
                asked.setdefault(choice.drafter, []).append(idx)
        for name, mine in asked.items():
            budgets = [choices[idx].budget for idx in mine]
            answers = self._propose(name, [requests[idx] for idx in mine], budgets, times)
            for idx, answer in zip(mine, answers, strict=True):
                proposals[idx] = answer
        return proposals

    def _propose(
        self,
        name: str,
        requests: Sequence[SpeculativeRequest],
        budgets: Sequence[Budget],
        times: StepTimes,
    ) -> list[Proposal]:
        is_behind = any(self.drafters.num_behind(name, request) for request in requests)
        began = times.clock()
        answers = self.drafters.propose(name, requests, budgets)
        seconds = times.clock() - began
        waiting = sum([self.drafters.is_waiting(name, request) for request in requests])
        num_told = 0 if is_behind else len(requests) - waiting
        times.drafts.append((name, num_told, _level_sizes(answers), seconds))
        return answers

    def begin(self, request: SpeculativeRequest) -> None:
        """Tell drafters that a request runs now; after a preemption it begins again."""
        self.drafters.begin(request)

    def layers_for(self, requests: Sequence[SpeculativeRequest]) -> tuple[int, ...]:
        """The layers whose hidden states drafters need from a pass over these requests.

        Heads are left out here already, before a request's first pass, since a head that is left
        out does not need the prompt's hidden states either.
        """
        layers = self.drafters.layers_for(requests)
        if layers and self.controller and self._leave_out_heads(self.controller, requests):
            layers = self.drafters.layers_for(requests)
        return layers

    def tapped(
        self, request: SpeculativeRequest, start: int, rows: Mapping[int, FloatArray]
    ) -> None:
        """Give drafters the hidden states, by layer, of committed tokens from `start` on."""
        self.drafters.tapped(request, start, rows)

    def evict(self, request: SpeculativeRequest) -> None:
        """Free a preempted request's rows in the caches of drafters."""
        self.drafters.evict(request)

    def commit(
        self,
        request: SpeculativeRequest,
        choice: Choice | None,
        proposal: Proposal,
        emitted: Verdict,
    ) -> None:
        """Tell all drafters what was emitted, and the one that guessed what was accepted."""
        drafter = choice.drafter if choice and choice.pick is None else None
        if drafter is not None and self.cards and len(proposal):
            self._check_card(request, drafter, proposal.tokens[0] == emitted.tokens[0])
        is_waiting = drafter is not None and self.drafters.is_waiting(drafter, request)
        is_known = self.drafters.commit(request, drafter, emitted)
        is_weighed = choice is not None and choice is not NOT_LOOKED and choice is not SILENT
        if is_known and self.controller and is_weighed:
            args = request.id, choice, proposal, emitted.tokens, is_waiting
            self.drafters.attempt(_CONTROLLER, request, self.controller.commit, *args)

    def _check_card(self, request: SpeculativeRequest, drafter: str, is_accepted: bool) -> None:
        assert self.cards is not None
        if request.params.temperature > 1:  # heads are not trained for such texts
            return
        reason = self.cards.observe(drafter, is_accepted=is_accepted)
        if reason is not None:
            self.left_out[drafter] = reason
            self.drafters.put_aside(drafter, reason)

    def observe(self, times: StepTimes) -> None:
        """Tell the controller where the seconds of a step went.

        The time of the choice counts among the costs of drafters that had to be asked: while they
        sleep, nothing would be weighed.
        """
        if self.controller:
            for idx, (name, num, sizes, seconds) in enumerate(times.drafts):
                if name not in self.drafters.picking:
                    times.drafts[idx] = name, num, sizes, seconds + times.look_seconds
            self.drafters.attempt(_CONTROLLER, None, self.controller.observe, times)

    def num_failures(self, request: SpeculativeRequest) -> int:
        """How often drafters, or the controller, failed a request."""
        return self.drafters.num_failures(request)

    def in_use(self) -> dict[str, int]:
        """Count what requests hold here; all 0 once they have ended."""
        remembered = self.looks.requests | (self.controller.requests if self.controller else set())
        return {**self.drafters.in_use(), "controller_entries": len(remembered)}

    def end(self, request: SpeculativeRequest) -> int:
        """Forget a request; return its `num_failures`."""
        self.looks.end(request.id)
        if self.controller:
            self.drafters.attempt(_CONTROLLER, request, self.controller.end, request.id)
        return self.drafters.end(request)


def budget_for(
    request: SpeculativeRequest,
    ceiling: Budget,
    least_chance: float = 0.0,
    *,
    is_steady: bool = False,
) -> Budget:
    """Return the ceiling, lowered to what the request allows and its answer has room for.

    A round emits one token more than it accepts. With `is_steady` the depth is not lowered towards
    the end of an answer, because only rounds that are alike begin early.
    """
    own, depth = request.speculation, min(ceiling.depth, max(0, request.num_left - 1))
    if is_steady and depth:
        depth = ceiling.depth
    if own.num_speculative_tokens is not None:
        depth = min(depth, own.num_speculative_tokens)
    num_branches = min(ceiling.num_branches, own.num_branches or ceiling.num_branches)
    return Budget(depth, num_branches, ceiling.first_draw, least_chance)


def _deepest(choice: Choice, ways: Sequence[Way]) -> Choice:
    """Return the choice with all guesses that its drafter may make: they cost no more than fewer,
    and the device expects the next round to be like this one."""
    return choice._replace(depth=max(len(w.gains) for w in ways if w.drafter == choice.drafter))


def _level_sizes(proposals: Sequence[Proposal]) -> list[int]:
    """Return the number of guesses on each level, over all proposals."""
    if len(proposals) == 1 and proposals[0].tree.is_chain:
        return [1] * len(proposals[0])
    sizes = Counter(chain.from_iterable(proposal.tree.depths for proposal in proposals))
    return [sizes[depth] for depth in range(1, len(sizes) + 1)]
