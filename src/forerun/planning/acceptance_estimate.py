"""How far a drafter's guesses will hold, learnt from how far they held."""

from __future__ import annotations

from typing import Final

from forerun.planning.hit_rate import FixedRate, HitRate

# Before anything was seen: hopeful enough to try, and forgotten after a few trials.
_FIRST_GUESS: Final = FixedRate(0.65)
_SIBLING_GUESS: Final = FixedRate(0.15)  # holds where all siblings before it missed
_PRIOR_STRENGTH: Final = 6.0
_SHARED_MEMORIES: Final = (384, 96, 24)


class AcceptanceEstimate:
    """The chance of the first guess, and the chance of each one below a guess that held.

    The two differ where text is copied: the first guess asks whether the copying goes on, the
    others rarely miss once it does. `first[j]` is the chance of sibling j where those before it
    missed.
    """

    def __init__(self, prior: AcceptanceEstimate | None = None) -> None:
        self._prior = prior
        if prior is None:
            self._first = [HitRate(_FIRST_GUESS, memories=_SHARED_MEMORIES)]
            self._deeper = HitRate(self._first[0], memories=_SHARED_MEMORIES)
        else:
            self._deeper = HitRate(prior._deeper, _PRIOR_STRENGTH)
            self._first = [HitRate(prior._first[0], _PRIOR_STRENGTH)]

    def gains(self, depth: int, num_branches: int = 1) -> list[float]:
        """Expected accepted guesses on each level, 1 … `depth`; they never rise."""
        missed = 1.0
        for rank in range(num_branches):
            missed *= 1 - self._sibling(rank).rate
        gain, below, gains = 1 - missed, self._deeper.rate, []
        for _ in range(depth):
            gains.append(gain)
            gain *= below
        return gains

    @property
    def rate(self) -> float:
        """The chance of a first guess."""
        return self._first[0].rate

    def observe(
        self, num_guessed: int, num_matched: int, num_known: int = 0, branch: int = 0
    ) -> None:
        """Along one path, `num_matched` of `num_guessed` guesses held; the rest are misses.

        Only the first miss counts, since nothing below it was tried. `num_known` of the guesses
        were reported before. `branch` is the sibling that held, or the last one if all missed.
        """
        for position in range(num_known, min(num_guessed, num_matched + 1)):
            hit = position < num_matched
            if position > 0:
                self._deeper.observe(hit)
            else:
                for rank in range(branch + 1):
                    self._sibling(rank).observe(hit and rank == branch)
        if num_matched and num_guessed == 1:
            self._deeper.age()

    def age(self) -> None:
        self._deeper.age()
        self._first[0].age()

    def _sibling(self, rank: int) -> HitRate:
        while rank >= len(self._first):
            if self._prior is None:
                self._first.append(HitRate(_SIBLING_GUESS, memories=_SHARED_MEMORIES))
            else:
                prior = self._prior._sibling(len(self._first))
                self._first.append(HitRate(prior, _PRIOR_STRENGTH))
        return self._first[rank]
