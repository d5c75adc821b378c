"""The controller, which decides in each round what every request spends on guesses, if anything.

It works on measured seconds that it is given and on committed history. It has no clock of its own,
and the same observations always give the same decision. A round, as `Speculation` calls it:

    ways      how each drafter could guess for a request, and what that would bring
    choose    a Choice for every request
    commit    learns from the tokens with which a request's text went on
    observe   learns from where the seconds of the step went
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from forerun.drafters import Budget
from forerun.speculation.acceptance import Acceptance, Start
from forerun.speculation.allocation import Allocator, Chosen
from forerun.speculation.alone import best_alone
from forerun.speculation.choice import SILENT, Choice, Reason, Way
from forerun.speculation.costs import Costs
from forerun.speculation.step_times import StepTimes
from forerun.types import ROOT, Proposal

_PROBE_SHARE: Final = 0.008  # of all time, for probes
_PLAIN_EVERY: Final = 64  # passes since a plain one before another is run


class Controller:
    """Chooses drafter, depth and branches for each request of a batch.

    If a drafter gives no chances of its own, the controller learns how often its guesses are
    accepted, from every known guess, used or not. A costly drafter that is not believed to pay
    makes one guess now and then as a probe, for a small share of the time. If every pass has
    guesses, a plain pass is run now and then, to find out what it costs.
    """

    def __init__(self, costs: Costs) -> None:
        self.costs = costs
        self.probe_seconds = 0.0  # spent on probes so far
        self._credit = self._most_credit = costs.target.seconds(1)  # for probes
        self._num_since_plain = 0  # passes since a plain one was timed
        self._has_weighed = False  # whether any ways were weighed in this round
        self._shared: dict[str, Acceptance] = {}
        self._own: dict[int, dict[str, Acceptance]] = {}
        self._picks: dict[int, dict[str, Proposal]] = {}  # of this round, to be scored by the text

    def expect(self, drafter: str, start: Start) -> None:
        """Start from what is known of a drafter's acceptance; it is corrected by the texts here."""
        self._shared[drafter] = Acceptance(start=start)

    def acceptance(self, request: int, drafter: str) -> Acceptance:
        own = self._own.setdefault(request, {})
        if drafter not in own:
            own[drafter] = Acceptance(self._shared.setdefault(drafter, Acceptance()))
        return own[drafter]

    def ways(
        self,
        request: int,
        drafter: str,
        budget: Budget,
        pick: Proposal | None = None,
        num_trees: int = 1,
    ) -> list[Way]:
        """Return how a drafter could guess for a request: one way for each number of branches.

        `pick` is its guess if it was asked already; with an empty one there is no way.
        """
        if pick is not None and not len(pick):
            return []
        acceptance = self.acceptance(request, drafter)
        depth, num_branches, chances = budget.depth, budget.num_branches, list[float]()
        if pick is not None:
            chances, depth = pick.chances, min(depth, pick.depth)
            num_branches = min(num_branches, len(pick.tree.children(ROOT)))
            if num_branches > 1 or not chances:
                self._picks.setdefault(request, {})[drafter] = pick
        if not chances:  # else the drafter's own chances are used, and nothing is learnt
            acceptance.begin_round()
        if depth == 0:
            return []
        gains = [acceptance.gains(depth, 1 + num, chances) for num in range(num_branches)]
        return [
            Way(drafter, num, num * num_trees, own, pick, acceptance)
            for num, own in enumerate(gains, start=1)
        ]

    def choose(
        self, ways: Sequence[Sequence[Way]], num_idle: int = 0, num_prompt_tokens: int = 0
    ) -> list[Choice]:
        """Return a choice for each request, given its ways to guess.

        Requests without ways, and `num_idle` other requests, are in the same pass and advance by
        one token each.
        """
        able = [own for own in ways if own]
        self._has_weighed = bool(able)
        if not able:
            return [SILENT] * len(ways)
        allocator = Allocator(self.costs, len(ways) + num_idle, num_prompt_tokens)
        chosen, otherwise, probe = allocator.best(able), Reason.NOTHING_PAYS, None
        if any(chosen) and self.is_plain_due and num_prompt_tokens == 0:
            chosen, otherwise = [None] * len(able), Reason.BASELINE
        else:
            probe = self._probe(able, chosen, allocator)
        seconds = allocator.seconds(chosen)
        price = allocator.price(sum(o[0].width * o[1] for o in chosen if o), seconds)
        plain = Choice(otherwise, expected_tokens=1.0, expected_seconds=seconds)
        worth = self.costs.least_price(len(ways) + num_idle, num_prompt_tokens)
        choices = [
            Choice.of(*one, Reason.PAYS, seconds, price, worth) if one else plain for one in chosen
        ]
        if probe is not None:
            choices[probe] = choices[probe]._replace(reason=Reason.PROBE, least_chance=0.0)
        found = iter(choices)
        return [next(found) if own else SILENT for own in ways]

    def choose_alone(self, picks: Sequence[tuple[str, Proposal]]) -> Choice:
        """As `choose`, for one request whose only ways to guess are its drafters' `picks`."""
        self._has_weighed = True
        return best_alone(self.costs, picks, is_plain_due=self.is_plain_due)

    @property
    def is_plain_due(self) -> bool:
        """Whether no plain pass has been timed for long, so that the next one should be plain."""
        return self._num_since_plain >= _PLAIN_EVERY and not self.costs.knows_whole

    def _probe(
        self, ways: Sequence[Sequence[Way]], chosen: list[Chosen], allocator: Allocator
    ) -> int | None:
        """Add one guess by the costly drafter that was judged longest ago to `chosen`.

        Only if the time for probes allows it, and the drafter would pay if all its guesses were
        accepted. Returns the index of the request, or None.
        """
        idle = [
            (idx, way)
            for idx, own in enumerate(ways)
            for way in own
            if chosen[idx] is None and way.is_costly
        ]
        if not idle:
            return None
        idx, way = max(idle, key=lambda found: found[1].acceptance.num_unseen)

        def probing(depth: int, gains: Sequence[float]) -> list[Chosen]:
            return [*chosen[:idx], (way._replace(gains=gains), depth), *chosen[idx + 1 :]]

        cost = allocator.seconds(probing(1, way.gains)) - allocator.seconds(chosen)
        self._most_credit = max(self._most_credit, cost)  # the machine may have become slower
        sure, rate = [1.0] * len(way.gains), allocator.rate(chosen)
        rates = (allocator.rate(probing(1 + idx, sure)) for idx in range(len(sure)))
        if cost > self._credit or all(found <= rate for found in rates):
            return None
        self._credit -= cost
        self.probe_seconds += cost
        chosen[idx] = way, 1
        return idx

    def commit(
        self,
        request: int,
        choice: Choice,
        proposal: Proposal,
        tokens: Sequence[int],
        is_waiting: bool = False,
    ) -> None:
        """Learn from a request's round: its text went on with `tokens`.

        A drafter that `is_waiting` had no chance to guess, so its silence says nothing.
        """
        for drafter, pick in self._picks.pop(request, {}).items():
            self.acceptance(request, drafter).observe(pick, tokens)
        if choice.drafter is None or choice.pick is not None or is_waiting:
            return
        acceptance = self.acceptance(request, choice.drafter)
        acceptance.speaking.observe(len(proposal) > 0)
        acceptance.observe(proposal, tokens, depth=choice.depth, is_merged=choice.num_trees > 1)

    def observe(self, times: StepTimes) -> None:
        """Learn from the times of a step. Of rounds in which nothing was weighed, only plain ones
        are learnt from, and later, in groups: what changes no decision should cost little."""
        for drafter, num_requests, level_sizes, seconds in times.drafts:
            if num_requests:
                self.costs.observe_draft(drafter, num_requests, level_sizes, seconds)
            self._earn(seconds)
        if not times.num_requests:
            return
        is_plain = times.num_tokens == times.num_requests
        self._num_since_plain = 0 if is_plain else self._num_since_plain + 1
        self._earn(times.pass_seconds + times.rest_seconds)
        (self.costs.observe_round if self._has_weighed else self.costs.note_round)(times)
        self._has_weighed = False

    def _earn(self, seconds: float) -> None:
        """Add a share of the time that has passed to the credit for probes."""
        self._credit = min(self._most_credit, self._credit + _PROBE_SHARE * seconds)

    @property
    def requests(self) -> set[int]:
        """The ids of the requests that it remembers."""
        return self._own.keys() | self._picks.keys()

    def end(self, request: int) -> None:
        self._own.pop(request, None)
        self._picks.pop(request, None)
