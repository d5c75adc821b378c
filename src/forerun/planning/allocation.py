"""Who guesses how deep, so that the whole batch earns the most tokens per second.

All requests share one pass, whose cost depends on the tokens of all of them, and a drafter's
levels, which are run for all its requests at once. So the choice is joint:

    maximise (requests + Σ gains) / (pass(tokens of all) + draft(levels, requests))

Requests that do not guess this round count as well: their tokens come later, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from forerun.planning.choice import ALONE, Company
from forerun.planning.cost_model import CostModel

# A pass's cost may go up in steps, so no single slope prices a guess; each of these is tried.
_PRICE_SPANS: Final = (4, 1, 16)
_BETTER: Final = 1 + 1e-12  # beyond what rounding can pretend
_FEW: Final = 4  # guesses: rounds with up to so many are priced at once


class Line(NamedTuple):
    """One way for a request to guess: `gains[k]` accepted guesses expected on level k + 1."""

    drafter: str
    num_branches: int
    gains: Sequence[float]  # never rising
    is_costly: bool  # asking costs time; a cheap drafter was asked already
    num_parts: int = 1  # chains in each branch
    speaking: float = 1.0  # the chance that it has a guess at all; otherwise the round is plain

    @property
    def width(self) -> int:
        """Guesses on each level."""
        return self.num_branches * self.num_parts

    def surplus(self, price: float) -> float:
        """What is left of the gains, at best, when every guess costs `price` tokens."""
        price *= self.width
        return self.speaking * sum(max(0.0, gain - price) for gain in self.gains)


class Share(NamedTuple):
    """What one request gets: a line and how deep; depth 0 is plain."""

    line: Line | None
    depth: int

    @property
    def tokens(self) -> float:
        if self.line is None:
            return 1.0
        return 1 + self.line.speaking * sum(self.line.gains[: self.depth])

    @property
    def num_nodes(self) -> int:
        return self.depth * self.line.width if self.line else 0


PLAIN: Final = Share(None, 0)


def replaced(shares: Sequence[Share], idx: int, share: Share) -> list[Share]:
    """The same shares with another one at `idx`."""
    return [*shares[:idx], share, *shares[idx + 1 :]]


@dataclass(frozen=True)
class Allocation:
    """One share per request, and what the round is expected to yield and to cost."""

    shares: tuple[Share, ...]
    tokens: float
    seconds: float

    @property
    def rate(self) -> float:
        return self.tokens / self.seconds

    @property
    def num_nodes(self) -> int:
        return sum(share.num_nodes for share in self.shares)


class Allocator:
    """Finds the best allocation for one round.

    For given lines the best use of n guesses is exact: gains never rise along a line, so taking
    the largest first is optimal for every n, and one walk over the sorted gains sees all n. Which
    line each request follows is settled by the price of a token: what a guess adds to the pass,
    in tokens that the time would earn otherwise.
    """

    def __init__(self, costs: CostModel, num_asking: int, company: Company = ALONE) -> None:
        self._costs = costs
        self._num_idle, self._num_prompt_tokens = company
        self._num_requests = num_asking + company.num_idle
        self._seconds: list[float] = []  # of a round, by its guesses
        self._round_seconds(_FEW)
        self.plain = Allocation((PLAIN,) * num_asking, self._num_requests, self._seconds[0])
        self.least_gain = costs.least_price(self._num_requests, self._num_prompt_tokens)

    def best(self, lines: Sequence[Sequence[Line]]) -> Allocation:
        """At equal rates, the fewest guesses."""
        best = self.plain
        for picked, drafter in self._picks(lines):
            found = self._fill(picked, drafter)
            if found.rate > best.rate * _BETTER:
                best = found
        return best

    def evaluate(self, shares: Sequence[Share]) -> Allocation:
        """What these shares yield and cost together."""
        num_nodes = sum(share.num_nodes for share in shares)
        seconds = self._round_seconds(num_nodes)
        asking = 0.0
        costly = [share for share in shares if share.line and share.line.is_costly]
        for drafter in {share.line.drafter for share in costly if share.line}:
            mine = [share for share in costly if share.line and share.line.drafter == drafter]
            seconds += self._costs.draft_seconds(drafter, len(mine), _level_sizes(mine))
            asking += self._costs.draft_seconds(drafter, len(mine), ())
        if (speaking := _speaking(shares)) < 1:
            silent = self.plain.seconds + asking
            seconds = silent + speaking * (seconds - silent)
        tokens = self._num_idle + sum(share.tokens for share in shares)
        return Allocation(tuple(shares), tokens, seconds)

    def price_of(self, allocation: Allocation) -> float:
        """What each of its guesses takes, in tokens that a plain pass brings in that time."""
        added = allocation.seconds - self.plain.seconds
        return added * self.plain.rate / max(1, allocation.num_nodes)

    def _picks(
        self, lines: Sequence[Sequence[Line]]
    ) -> Iterator[tuple[Sequence[Line | None], str | None]]:
        """One line per request, and the costly drafter among them: all there are for a single
        request, and for a batch those that win at some price."""
        if len(lines) == 1:
            yield from (([line], line.drafter) for line in lines[0])
            return
        has_rivals = any(len(own) > 1 for own in lines)
        for num_more in _PRICE_SPANS if has_rivals else _PRICE_SPANS[:1]:
            price = self._price(num_more)
            for drafter in _teams(lines):
                yield [_pick(own, drafter, price) for own in lines], drafter

    def _price(self, num_more: int) -> float:
        """What one of `num_more` guesses adds to a plain pass, in tokens."""
        plain = self._round_seconds(0)
        added = self._round_seconds(num_more) - plain
        return added / num_more * self._num_requests / plain

    def _fill(self, picked: Sequence[Line | None], drafter: str | None) -> Allocation:
        """The best depths for one line each. A costly drafter's levels cost the same for one
        request as for all, so every number of levels is tried."""
        steps = _steps(picked, self.least_gain)
        self._round_seconds(sum(step[_WIDTH] for step in steps))
        costly = [line for line in picked if line is not None and line.is_costly]
        best_rate, best_steps = self._walk(steps, 0.0) if not costly else (0.0, steps[:0])
        for num_levels in range(1, max((len(line.gains) for line in costly), default=0) + 1):
            assert drafter is not None
            level = sum(line.width for line in costly)
            draft = self._costs.draft_seconds(drafter, len(costly), [level] * num_levels)
            allowed = [s for s in steps if s[_LEVEL] < num_levels or not s[_IS_COSTLY]]
            rate, taken = self._walk(allowed, draft)
            if rate > best_rate * _BETTER:
                best_rate, best_steps = rate, taken
        depths = [0] * len(picked)
        for step in best_steps:
            depths[step[_IDX]] = step[_LEVEL] + 1
        return self.evaluate(
            [Share(line, d) if d else PLAIN for line, d in zip(picked, depths, strict=True)]
        )

    def _walk(self, steps: list[_Step], draft: float) -> tuple[float, list[_Step]]:
        """The best rate along the steps, and those that it takes."""
        tokens, num_nodes = float(self._num_requests), 0
        best_rate, num_taken = 0.0, 0
        seconds = self._seconds
        for num, (_, _, _, gain, width, _) in enumerate(steps, start=1):
            tokens += gain
            num_nodes += width
            rate = tokens / (seconds[num_nodes] + draft)
            if rate > best_rate * _BETTER:
                best_rate, num_taken = rate, num
        return best_rate, steps[:num_taken]

    def _round_seconds(self, num_nodes: int) -> float:
        num_known = len(self._seconds)
        if num_nodes >= num_known:
            missing = range(num_known, num_nodes + 1)
            self._seconds += self._costs.round_seconds(
                self._num_requests, self._num_prompt_tokens, missing
            )
        return self._seconds[num_nodes]


# One more level for one request; a plain tuple, since there are hundreds in a round. It begins
# with the gain per guess, negated so that the best sorts first.
_Step: TypeAlias = tuple[float, int, int, float, int, bool]
_LEVEL: Final = 1
_IDX: Final = 2
_WIDTH: Final = 4
_IS_COSTLY: Final = 5


def _speaking(shares: Sequence[Share]) -> float:
    """The part of the guesses that will be made, where drafters may be silent."""
    lines = [(share.num_nodes, share.line.speaking) for share in shares if share.line]
    if all(speaking == 1 for _, speaking in lines):
        return 1.0
    return sum(num * speaking for num, speaking in lines) / sum(num for num, _ in lines)


def _level_sizes(shares: Sequence[Share]) -> list[int]:
    """Guesses on each level, over all these shares."""
    most = max(share.depth for share in shares)
    return [
        sum(share.num_nodes // share.depth for share in shares if share.depth > level)
        for level in range(most)
    ]


def _steps(picked: Sequence[Line | None], least_gain: float) -> list[_Step]:
    """The best first, as far as a guess can be worth its time."""
    steps = []
    for idx, line in enumerate(picked):
        if line is not None:
            width, gains, is_costly = line.width, line.gains, line.is_costly
            steps += [
                (-gain / width, level, idx, gain, width, is_costly)
                for level, gain in enumerate(gains)
                if gain > least_gain * width
            ]
    steps.sort()
    return steps


def _teams(lines: Sequence[Sequence[Line]]) -> list[str | None]:
    """Cheap drafters alone; then each costly one beside them."""
    costly = {line.drafter: None for choices in lines for line in choices if line.is_costly}
    return [None, *costly]


def _pick(choices: Sequence[Line], drafter: str | None, price: float) -> Line | None:
    """The line with the largest surplus at this price, among the team's."""
    if len(choices) == 1 and not choices[0].is_costly:
        return choices[0]
    best, best_surplus = None, -1.0
    for line in choices:
        if line.is_costly and line.drafter != drafter:
            continue
        surplus = line.surplus(price)
        if surplus > best_surplus:
            best, best_surplus = line, surplus
    return best
