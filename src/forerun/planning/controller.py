"""The controller: each round, what every request spends on guesses; 0 is an answer.

It works on numbers that others measured and on committed history, has no clock of its own, and
answers the same to the same observations. A round, as the engine calls it:

    is_cheap, offered     cheap drafters say what they would guess, used or not
    plan                  a Choice for every request
    observe_draft         what a drafter's answer took
    observe_pass          what the target's pass took; or skip_pass, where nobody weighed the round
    observe_rest          what the round took besides
    observe_verified      how far a costly drafter's guesses held
    observe_silence       a costly drafter had none
    emitted               the tokens that came out; open offers are scored against them
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from forerun.planning.allocation import PLAIN, Allocation, Allocator, Line, Share, replaced
from forerun.planning.beliefs import Beliefs
from forerun.planning.choice import ALONE, NO_ROOM, SILENT, Choice, Company, Reason, Standing
from forerun.planning.cost_model import CostModel
from forerun.planning.probing import Allowance, BaselineClock, Probe, find_probe

_CHEAP: Final = 0.05  # of a plain pass: what asking may cost and still be done at every look


@dataclass(frozen=True)
class Limits:
    """What a user set: `num_speculative_tokens`, `num_branches`, `adaptive`."""

    max_depth: int
    num_branches: int = 1
    is_adaptive: bool = True


class Controller:
    """Chooses drafter, depth and branches for each request of a batch."""

    def __init__(self, limits: Limits, costs: CostModel) -> None:
        self.costs = costs
        self.beliefs = Beliefs()
        self.allowance = Allowance(costs.pass_seconds(1))
        self._limits = limits
        self._baseline = BaselineClock()
        self._baseline_loss = 0.0  # the share of this pass's time that a plain one gives away
        self._choices: dict[int, Choice] = {}
        self._bought: dict[int, tuple[float, float]] = {}  # a probe, and what a token is worth

    def is_cheap(self, drafter: str, num_requests: int) -> bool:
        """Whether to ask this drafter at every look: its guesses are then scored for nothing. One
        that nobody has heard often is asked, to find out."""
        if not self.costs.is_known(drafter):
            return True
        asking = self.costs.usual_draft_seconds(drafter, num_requests)
        return asking <= _CHEAP * self.costs.pass_seconds(num_requests)

    def least_chance(self, num_asking: int, company: Company) -> float:
        """Guesses that hold less often are not worth offering: no round has room for them."""
        num_requests = num_asking + company.num_idle
        return self.costs.least_price(num_requests, company.num_prompt_tokens)

    def offered(
        self,
        request: int,
        drafter: str,
        branches: Sequence[Sequence[int]],
        words: Sequence[float] = (),
    ) -> None:
        """A cheap drafter would guess these chains, one per branch; () if it is silent.

        `words` are the chances that it gives the guesses of the first branch, each given those
        before it; () if it gives none.
        """
        self.beliefs.offer(request, drafter, branches, words)

    def plan(self, standings: Sequence[Standing], company: Company = ALONE) -> list[Choice]:
        """One choice per standing; those who cannot guess this round are company for the rest."""
        for standing in standings:
            self._begin_round(standing)
        able = [standing for standing in standings if standing.may_guess]
        if len(able) == len(standings):
            return self._plan(able, company)
        found = {}
        if able:
            choices = self._plan(able, company.with_idle(len(standings) - len(able)))
            found = dict(zip((standing.request for standing in able), choices, strict=True))
        return [found.get(standing.request) or _idle(standing) for standing in standings]

    def _begin_round(self, standing: Standing) -> None:
        self._choices.pop(standing.request, None)
        for candidate in standing.candidates:
            self.beliefs.of(standing.request, candidate.drafter).begin_round()

    def _plan(self, standings: Sequence[Standing], company: Company) -> list[Choice]:
        allocator = Allocator(self.costs, len(standings), company)
        least = allocator.least_gain if self._limits.is_adaptive else 0.0
        lines = [self._lines(standing, least) for standing in standings]
        if not self._limits.is_adaptive:
            shares = [Share(own[0], len(own[0].gains)) if own else PLAIN for own in lines]
            return self._chosen(standings, allocator, allocator.evaluate(shares), Reason.FIXED)
        best = allocator.best(lines)
        if best is not allocator.plain and self._is_baseline_due(company):
            self._baseline_loss = 1 - allocator.plain.rate / best.rate
            return self._chosen(standings, allocator, allocator.plain, Reason.BASELINE)
        probe = self._find_probe(standings, lines, best, allocator)
        if probe is None:
            return self._chosen(standings, allocator, best, Reason.PAYS)
        probing = allocator.evaluate(replaced(best.shares, probe.idx, probe.share))
        self._buy_probe(probe, standings[probe.idx].request, 1 / best.rate)
        return self._chosen(standings, allocator, probing, Reason.PAYS, probe.idx)

    @property
    def is_plain_pass_due(self) -> bool:
        """Whether it has been long since a pass without guesses was observed."""
        return self._baseline.is_due

    def _is_baseline_due(self, company: Company) -> bool:
        is_plain = company.num_prompt_tokens == 0
        return is_plain and self.is_plain_pass_due and not self.allowance.is_in_debt

    def plain_tokens_in(self, seconds: float, num_requests: int) -> float:
        """What plain decoding of so many requests brings in this time."""
        return seconds * num_requests / self.costs.pass_seconds(num_requests)

    def observe_draft(
        self, drafter: str, num_requests: int, level_sizes: Sequence[int], seconds: float
    ) -> None:
        """A drafter answered `num_requests` at once; `level_sizes` counts its guesses by depth."""
        self.costs.observe_draft(drafter, num_requests, level_sizes, seconds)
        self.allowance.earn(seconds)

    def observe_pass(self, num_tokens: int, num_requests: int, seconds: float) -> None:
        """A target pass; without guesses or prompts it has one token per request."""
        surprise = self.costs.observe_pass(num_tokens, seconds)
        self._baseline.observe(num_tokens == num_requests, surprise)
        self.allowance.earn(seconds)
        self.allowance.spend(self._baseline_loss * seconds)
        self._baseline_loss = 0.0

    def skip_pass(self) -> None:
        """A target pass that nobody timed: its round was plain without being weighed."""
        self._baseline.skip()

    def observe_rest(self, num_requests: int, num_guesses: int, seconds: float) -> None:
        """The rest of the round: planning, verdicts, commit."""
        self.costs.observe_rest(num_requests, num_guesses, seconds)
        self.allowance.earn(seconds)

    def observe_verified(
        self, request: int, drafter: str, num_guessed: int, num_accepted: int, branch: int = 0
    ) -> None:
        """The target accepted `num_accepted` guesses of a path of `num_guessed`.

        Where the answer was cut inside the path, `num_guessed` ends at the cut. `branch` is the
        sibling that held at the root, or the last one if all missed. The guesses of a drafter
        that offers are scored by `emitted`.
        """
        if not self.beliefs.is_offering(request, drafter):
            self.beliefs.of(request, drafter).heard(spoke=True)
            self.beliefs.observe(request, drafter, num_guessed, num_accepted, branch=branch)
        seconds, token_seconds = self._bought.pop(request, (0.0, 0.0))
        self.allowance.spend(-min(seconds, num_accepted * token_seconds))

    def observe_silence(self, request: int, drafter: str) -> None:
        """A costly drafter was asked, and had no guess."""
        self.beliefs.of(request, drafter).heard(spoke=False)
        self._bought.pop(request, None)

    def emitted(self, request: int, tokens: Sequence[int]) -> None:
        """The request's text went on with `tokens`."""
        choice = self._choices.get(request)
        self.beliefs.follow(request, tokens, choice.drafter if choice else None)

    @property
    def requests(self) -> set[int]:
        """Whom it remembers."""
        return self._choices.keys() | self._bought.keys() | self.beliefs.requests

    def end(self, request: int) -> None:
        self.beliefs.end(request)
        self._choices.pop(request, None)
        self._bought.pop(request, None)

    def _lines(self, standing: Standing, least_gain: float) -> list[Line]:
        """Every way this request could guess."""
        room = min(standing.max_depth, self._limits.max_depth)
        lines = []
        for candidate in standing.candidates:
            name, offered = candidate.drafter, candidate.num_offered
            estimate = self.beliefs.of(standing.request, name)
            depth = room if offered is None else min(room, offered)
            if depth < 1:
                continue
            is_costly = offered is None  # it must be asked, and is not scored otherwise
            words = () if is_costly else self.beliefs.words(standing.request, name)
            least = 0.0 if is_costly else least_gain
            for width in self._widths(standing):
                gains = estimate.gains(depth, width, words, least)
                speaking = estimate.speaking if is_costly else 1.0
                lines.append(Line(name, width, gains, is_costly, candidate.num_parts, speaking))
        return lines

    def _widths(self, standing: Standing) -> range:
        most = self._limits.num_branches
        if standing.max_branches is not None:
            most = min(most, standing.max_branches)
        return range(1 if self._limits.is_adaptive else most, most + 1)

    def _find_probe(
        self,
        standings: Sequence[Standing],
        lines: Sequence[Sequence[Line]],
        best: Allocation,
        allocator: Allocator,
    ) -> Probe | None:
        if not any(line.is_costly for own in lines for line in own):
            return None
        estimates = [
            {line.drafter: self.beliefs.of(standing.request, line.drafter) for line in own}
            for standing, own in zip(standings, lines, strict=True)
        ]
        return find_probe(best, lines, estimates, allocator, self.allowance)

    def _buy_probe(self, probe: Probe, request: int, token_seconds: float) -> None:
        """What it brings in is paid back when it is verified."""
        self.allowance.spend(probe.seconds)
        self._bought[request] = probe.seconds, token_seconds

    def _chosen(
        self,
        standings: Sequence[Standing],
        allocator: Allocator,
        allocation: Allocation,
        reason: Reason,
        probe_idx: int | None = None,
    ) -> list[Choice]:
        price = allocator.price_of(allocation)
        choices = []
        for idx, (standing, share) in enumerate(zip(standings, allocation.shares, strict=True)):
            line = share.line
            why = reason if line or reason is Reason.BASELINE else Reason.NOTHING_PAYS
            choice = Choice(
                line.drafter if line else None,
                share.depth,
                line.num_branches if line else 1,
                share.tokens,
                allocation.seconds,
                Reason.PROBE if idx == probe_idx else why,
                share.tokens - 1 - share.num_nodes * price,
            )
            self._choices[standing.request] = choice
            choices.append(choice)
        return choices


def _idle(standing: Standing) -> Choice:
    return NO_ROOM if standing.max_depth < 1 else SILENT
