"""Which request guesses how deep, so that the whole batch emits the most tokens per second.

All requests share one pass, whose cost depends on the tokens of all of them, and requests with the
same drafter share its levels, which run for all of them at once. So the choice is joint:

    maximise (requests + Σ gains) / (pass(tokens of all) + draft(levels, requests))

Gains never rise along a chain. So for one way per request, taking the largest gains first is
optimal for every number of guesses, and one walk over the sorted gains finds the best number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from forerun.speculation.choice import Way
from forerun.speculation.costs import Costs

# Numbers of guesses over which the price of one is measured: a pass's cost may rise in steps, so
# no single slope will do, and each of these is tried.
_PRICE_SPANS: Final = (4, 1, 16)
_BETTER: Final = 1 + 1e-12  # a factor larger than rounding errors

Chosen: TypeAlias = tuple[Way, int] | None  # a way and its depth; None: a plain round

# One more level for one request: (minus the gain per guess, level, index, gain, width), so that
# the best sorts first. A plain tuple, since there are hundreds in a round.
_Step: TypeAlias = tuple[float, int, int, float, int]


class Allocator:
    """Computes what an allocation of guesses yields and costs in one round, and the best one."""

    def __init__(self, costs: Costs, num_requests: int, num_prompt_tokens: int = 0) -> None:
        self._costs = costs
        self._num_requests = num_requests
        self._num_prompt_tokens = num_prompt_tokens
        self._least_gain = costs.least_price(num_requests, num_prompt_tokens)
        self._seconds = costs.round_seconds(num_requests, num_prompt_tokens, 0)

    def best(self, ways: Sequence[Sequence[Way]]) -> list[Chosen]:
        """Return the best way and depth for each request; ties go to fewer guesses."""
        best: list[Chosen] = [None] * len(ways)
        best_rate = self._num_requests / self._seconds[0]
        for team in self._teams(ways):
            rate = self.rate(chosen := self._fill(team))
            if rate > best_rate * _BETTER:
                best, best_rate = chosen, rate
        return best

    def rate(self, chosen: Sequence[Chosen]) -> float:
        """Return expected tokens per second; requests that do not guess emit one token each."""
        accepted = sum([one[0].speaking * sum(one[0].gains[: one[1]]) for one in chosen if one])
        return (self._num_requests + accepted) / self.seconds(chosen)

    def seconds(self, chosen: Sequence[Chosen]) -> float:
        """Return the expected seconds of the round; a costly drafter may turn out to be silent."""
        taken = [one for one in chosen if one is not None]
        num_guesses = sum([way.width * depth for way, depth in taken])
        spoken, silent = self._round_seconds(num_guesses), self._seconds[0]
        for drafter in {way.drafter for way, _ in taken if way.is_costly}:
            mine = [(way.width, depth) for way, depth in taken if way.drafter == drafter]
            levels = range(max(depth for _, depth in mine))
            sizes = [sum(width for width, depth in mine if depth > level) for level in levels]
            spoken += self._costs.draft_seconds(drafter, len(mine), sizes)
            silent += self._costs.draft_seconds(drafter, len(mine), ())
        speaking = sum([w.speaking * w.width * depth for w, depth in taken]) / max(1, num_guesses)
        return speaking * spoken + (1 - speaking) * silent

    def price(self, num_guesses: int, seconds: float) -> float:
        """Return the time of one guess in a round with `num_guesses`, in tokens that a plain round
        would emit in that time."""
        return (seconds / self._seconds[0] - 1) * self._num_requests / max(1, num_guesses)

    def _teams(self, ways: Sequence[Sequence[Way]]) -> Iterator[Sequence[Way | None]]:
        """Yield candidates: one way for each request, with at most one costly drafter in all.

        For a single request these are all its ways; in a batch, those with the largest surplus at
        some price.
        """
        if len(ways) == 1:
            yield from ([way] for way in ways[0])
            return
        costly = dict.fromkeys(way.drafter for own in ways for way in own if way.is_costly)
        has_rivals = any(len(own) > 1 for own in ways)
        for span in _PRICE_SPANS if has_rivals else _PRICE_SPANS[:1]:
            price = self.price(span, self._round_seconds(span))
            for drafter in (None, *costly):
                able = [[w for w in own if not w.is_costly or w.drafter == drafter] for own in ways]
                yield [max(own, key=lambda w: w.surplus(price), default=None) for own in able]

    def _fill(self, team: Sequence[Way | None]) -> list[Chosen]:
        """Return the best depths for one way each.

        A costly drafter's levels cost the same for one request as for all, so each number of levels
        is tried. If the drafter's rounds are known as a whole, all guesses cost as much as one.
        """
        if len(team) == 1 and team[0] is not None and self._costs.is_whole(team[0].drafter):
            return [(team[0], len(team[0].gains))]
        steps = [
            (-gain / way.width, level, idx, gain, way.width)
            for idx, way in enumerate(team)
            if way
            for level, gain in enumerate(way.gains)
            if gain > self._least_gain * way.width
        ]
        steps.sort()
        self._round_seconds(sum([step[4] for step in steps]))
        costly = {idx: way for idx, way in enumerate(team) if way is not None and way.is_costly}
        best_rate, best = self._walk(steps, 0.0) if not costly else (0.0, steps[:0])
        width = sum(way.width for way in costly.values())
        for num_levels in range(1, 1 + max((len(w.gains) for w in costly.values()), default=0)):
            drafter = next(iter(costly.values())).drafter
            draft = self._costs.draft_seconds(drafter, len(costly), [width] * num_levels)
            allowed = [step for step in steps if step[1] < num_levels or step[2] not in costly]
            rate, taken = self._walk(allowed, draft)
            if rate > best_rate * _BETTER:
                best_rate, best = rate, taken
        depths = {step[2]: step[1] + 1 for step in best}  # levels of a request come in order
        return [(w, depths[i]) if w and i in depths else None for i, w in enumerate(team)]

    def _walk(self, steps: list[_Step], draft_seconds: float) -> tuple[float, list[_Step]]:
        """Return the best rate among all prefixes of `steps`, and that prefix."""
        tokens, num_guesses, seconds = float(self._num_requests), 0, self._seconds
        best_rate, num_taken = 0.0, 0
        for num, (_, _, _, gain, width) in enumerate(steps, start=1):
            tokens += gain
            num_guesses += width
            rate = tokens / (seconds[num_guesses] + draft_seconds)
            if rate > best_rate * _BETTER:
                best_rate, num_taken = rate, num
        return best_rate, steps[:num_taken]

    def _round_seconds(self, num_guesses: int) -> float:
        """Return the seconds of a round with so many guesses, without drafting."""
        if num_guesses >= len(self._seconds):
            args = self._num_requests, self._num_prompt_tokens, num_guesses
            self._seconds = self._costs.round_seconds(*args)
        return self._seconds[num_guesses]
