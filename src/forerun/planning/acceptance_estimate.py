"""How far a drafter's guesses will hold, learnt from how far they held."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, repeat, takewhile
from operator import mul
from typing import Final, TypeAlias

from forerun.planning.hit_rate import HitRate
from forerun.planning.shared_acceptance import SharedAcceptance

_PRIOR_STRENGTH: Final = 10.0  # trials that what others taught counts for

Words: TypeAlias = Sequence[float]


class AcceptanceEstimate:
    """Chances of three kinds of guesses.

    first    the first of a round after a miss; `_first[j]` is sibling j where those before missed
    again    the first of a round after one in which every guess held
    deeper   a guess below one that held

    They differ where text is copied: the first guess asks whether copying has begun, the others
    rarely miss once it has. Where they are alike, they are shrunk towards each other. Which kind
    comes next fades while nobody looks: each unseen token moves the state as a guess would have.
    """

    def __init__(self, shared: SharedAcceptance | None = None) -> None:
        self._shared = shared or SharedAcceptance()
        self._running = 0.0  # the chance that a guess for the latest token held, or would have
        self.num_unseen = 0  # rounds since a first guess was tried
        self.num_deeper_unseen = 0
        self._first = [HitRate(self._shared.sibling(0), _PRIOR_STRENGTH)]
        self._again = HitRate(self._shared.again, _PRIOR_STRENGTH)
        self._deeper = HitRate(self._shared.deeper, _PRIOR_STRENGTH)
        self._speaking = HitRate(self._shared.speaking, _PRIOR_STRENGTH)

    def gains(
        self, depth: int, num_branches: int = 1, words: Words = (), least: float = 0.0
    ) -> list[float]:
        """Expected accepted guesses on each level, 1 … `depth`; they never rise.

        `words` is what the drafter says of each level's guess, if it says anything. Deeper levels
        that bring no more than `least` are left out.
        """
        first, deeper = self.rate, self._deeper.rate
        below: Iterable[float] = repeat(deeper, depth - 1)
        if words:
            first = self._shared.of_first.chance(first, words[0])
            below = self._shared.of_deeper.chances(deeper, words[1:depth])
        missed = 1 - first
        for rank in range(1, num_branches):
            missed *= 1 - self._sibling(rank).rate
        gains = accumulate(below, mul, initial=1 - missed)
        return [next(gains), *takewhile(lambda gain: gain > least, gains)]

    @property
    def rate(self) -> float:
        """The chance of the next first guess."""
        running = self._running
        if running == 0:
            return self._first[0].rate
        return running * self._again.rate + (1 - running) * self._first[0].rate

    @property
    def speaking(self) -> float:
        """The chance that the drafter has a guess at all; one that was never silent always has."""
        return self._speaking.rate if self._shared.was_silent else 1.0

    def heard(self, *, spoke: bool) -> None:
        """The drafter was asked, and had a guess or none."""
        self._shared.was_silent |= not spoke
        if self._shared.was_silent:
            self._speaking.observe(spoke)
            self._shared.speaking.observe(spoke)

    def observe(
        self,
        num_guessed: int,
        num_matched: int,
        num_known: int = 0,
        branch: int = 0,
        words: Words = (),
    ) -> None:
        """Along one path, `num_matched` of `num_guessed` guesses held; the rest are misses.

        Only the first miss counts, since nothing below it was tried. `num_known` of the guesses
        were reported before. `branch` is the sibling that held, or the last one if all missed.
        What is learnt for one request is learnt for the drafter.
        """
        for position in range(num_known, min(num_guessed, num_matched + 1)):
            hit = position < num_matched
            if words and branch == 0:
                self._learn(position, words[position], hit)
            if position > 0:
                self._observe_deeper(hit)
                self.num_deeper_unseen = 0
            else:
                self._observe_first(hit, branch)
                self.num_unseen = 0
            self._running = float(hit)

    def begin_round(self) -> None:
        """What the last round did not try is one round older."""
        if self.num_unseen:
            self._running = self.rate
            self._first[0].age()
            self._again.age()
        if self.num_deeper_unseen:
            self._deeper.age()
        self.num_unseen += 1
        self.num_deeper_unseen += 1

    def _observe_first(self, hit: bool, branch: int) -> None:
        held = hit and branch == 0
        if self._running > 0.5:
            self._again.observe(held)
            self._shared.again.observe(held)
        else:
            self._first[0].observe(held)
            self._shared.sibling(0).observe(held)
        for rank in range(1, branch + 1):
            self._sibling(rank).observe(hit and rank == branch)
            self._shared.sibling(rank).observe(hit and rank == branch)

    def _observe_deeper(self, hit: bool) -> None:
        self._deeper.observe(hit)
        self._shared.deeper.observe(hit)

    def _learn(self, position: int, word: float, hit: bool) -> None:
        if position > 0:
            self._shared.of_deeper.learn(self._deeper.rate, word, hit)
        else:
            self._shared.of_first.learn(self.rate, word, hit)

    def _sibling(self, rank: int) -> HitRate:
        while rank >= len(self._first):
            self._first.append(HitRate(self._shared.sibling(len(self._first)), _PRIOR_STRENGTH))
        return self._first[rank]
