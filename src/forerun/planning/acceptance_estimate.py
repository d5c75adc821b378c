"""How far a drafter's guesses will hold, learnt from how far they held."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, repeat
from operator import mul
from typing import Final, TypeAlias

from forerun.planning.evidence import Evidence
from forerun.planning.hit_rate import FixedRate, HitRate

# Before anything was seen: hopeful enough to try, and forgotten after a few trials.
_FIRST_GUESS: Final = FixedRate(0.65)
_SIBLING_GUESS: Final = FixedRate(0.15)  # holds where all siblings before it missed
_PRIOR_STRENGTH: Final = 10.0
_LIKENESS: Final = 8.0  # how far one kind of guess speaks for the next, in trials
_SHARED_MEMORIES: Final = (384, 96, 24)

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

    def __init__(self, prior: AcceptanceEstimate | None = None) -> None:
        self._prior = prior
        self._running = 0.0  # the chance that a guess for the latest token held, or would have
        self.num_unseen = 0  # rounds since a first guess was tried
        self.num_deeper_unseen = 0
        if prior is None:
            first = HitRate(_FIRST_GUESS, memories=_SHARED_MEMORIES)
            self._again = HitRate(first, _LIKENESS, _SHARED_MEMORIES)
            self._deeper = HitRate(self._again, _LIKENESS, _SHARED_MEMORIES)
            self._of_first, self._of_deeper = Evidence(), Evidence()
        else:
            first = HitRate(prior._sibling(0), _PRIOR_STRENGTH)
            self._again = HitRate(prior._again, _PRIOR_STRENGTH)
            self._deeper = HitRate(prior._deeper, _PRIOR_STRENGTH)
            self._of_first, self._of_deeper = prior._of_first, prior._of_deeper
        self._first: list[HitRate] = [first]

    def gains(self, depth: int, num_branches: int = 1, words: Words = ()) -> list[float]:
        """Expected accepted guesses on each level, 1 … `depth`; they never rise.

        `words` is what the drafter says of each level's guess, if it says anything.
        """
        first, deeper = self.rate, self._deeper.rate
        below: Iterable[float] = repeat(deeper, depth - 1)
        if words:
            first = self._of_first.chance(first, words[0])
            below = [self._of_deeper.chance(deeper, word) for word in words[1:depth]]
        missed = 1 - first
        for rank in range(1, num_branches):
            missed *= 1 - self._sibling(rank).rate
        return list(accumulate(below, mul, initial=1 - missed))

    @property
    def rate(self) -> float:
        """The chance of the next first guess."""
        running = self._running
        if running == 0:
            return self._first[0].rate
        return running * self._again.rate + (1 - running) * self._first[0].rate

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

    def _observe_first(self, hit: bool, branch: int, *, was_running: bool | None = None) -> None:
        running = self._running > 0.5 if was_running is None else was_running
        (self._again if running else self._first[0]).observe(hit and branch == 0)
        for rank in range(1, branch + 1):
            self._sibling(rank).observe(hit and rank == branch)
        if self._prior is not None:
            self._prior._observe_first(hit, branch, was_running=running)

    def _learn(self, position: int, word: float, hit: bool) -> None:
        if position > 0:
            self._of_deeper.learn(self._deeper.rate, word, hit)
        else:
            self._of_first.learn(self.rate, word, hit)

    def _observe_deeper(self, hit: bool) -> None:
        self._deeper.observe(hit)
        if self._prior is not None:
            self._prior._observe_deeper(hit)

    def _sibling(self, rank: int) -> HitRate:
        while rank >= len(self._first):
            if self._prior is None:
                self._first.append(HitRate(_SIBLING_GUESS, memories=_SHARED_MEMORIES))
            else:
                prior = self._prior._sibling(len(self._first))
                self._first.append(HitRate(prior, _PRIOR_STRENGTH))
        return self._first[rank]
