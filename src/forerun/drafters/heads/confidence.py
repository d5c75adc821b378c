"""Calibration: from a head's own probability of a guess to the chance that it is accepted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from forerun.drafters.base import NOBODY, RequestView
from forerun.types import Draw, Proposal, Tree, Verdict

Guess = tuple[int, float]  # a token, and the head's probability of it

_NUM_BINS: Final = 8
_PRIOR_WEIGHT: Final = 6.0  # trials that the prior counts for
_KEPT: Final = 0.995  # weight that older trials keep with each new one


class Confidence:
    """Learns how often guesses of a given probability are accepted.

    At first, best tokens are expected to be accepted more often than the head's probability says,
    and drawn ones as often. Every guess that the text reached is a trial, also one that was left
    out of the proposal. First guesses are counted apart from later ones, drawn ones apart from best
    ones.
    """

    def __init__(self) -> None:
        centres = [(idx + 0.5) / _NUM_BINS for idx in range(_NUM_BINS)]
        best = [centre**0.7 for centre in centres]
        self._hits = [
            [_PRIOR_WEIGHT * chance for chance in prior] for prior in (best, best, centres, centres)
        ]
        self._trials = [[_PRIOR_WEIGHT] * _NUM_BINS for _ in range(4)]

    def chance(self, probability: float, place: int, *, is_drawn: bool) -> float:
        """Return the chance that a guess is accepted, if all before it are."""
        kind, idx = _kind(place, is_drawn), _bin(probability)
        return self._hits[kind][idx] / self._trials[kind][idx]

    def observe(self, probability: float, place: int, *, is_drawn: bool, is_hit: bool) -> None:
        kind, idx = _kind(place, is_drawn), _bin(probability)
        self._hits[kind][idx] = _KEPT * self._hits[kind][idx] + is_hit
        self._trials[kind][idx] = _KEPT * self._trials[kind][idx] + 1

    def worth_it(
        self, guesses: Sequence[Guess], least_chance: float, *, is_drawn: bool
    ) -> Proposal:
        """Return the guesses that are accepted, with all before them, with at least `least_chance`.

        All were picked, none was drawn from q, so any may be left out."""
        tokens, draws, so_far = list[int](), list[Draw](), 1.0
        for place, (token, share) in enumerate(guesses):
            chance = self.chance(share, place, is_drawn=is_drawn)
            so_far *= chance
            if so_far < least_chance:
                break
            tokens.append(token)
            draws.append(Draw(place, None, chance))
        return Proposal(Tree.chain(len(tokens)), tuple(tokens), tuple(draws))

    def judge(self, request: RequestView, guesses: Sequence[Guess], verdict: Verdict) -> None:
        """Count how the latest guesses did, proposed or not."""
        if request.id == NOBODY:
            return
        is_drawn = request.params.temperature > 0
        for place, (guess, token) in enumerate(zip(guesses, verdict.tokens, strict=False)):
            is_hit = guess[0] == token
            self.observe(guess[1], place, is_drawn=is_drawn, is_hit=is_hit)
            if not is_hit:
                break


def _kind(place: int, is_drawn: bool) -> int:
    return 2 * is_drawn + (place > 0)


def _bin(probability: float) -> int:
    return min(_NUM_BINS - 1, int(probability * _NUM_BINS))
