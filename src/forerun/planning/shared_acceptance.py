"""What all requests of a drafter have taught: where a new request starts."""

from __future__ import annotations

from typing import Final

from forerun.planning.evidence import Evidence
from forerun.planning.hit_rate import FixedRate, SteadyRate

# Before anything was seen: hopeful enough to try, and forgotten after a few trials.
_FIRST_GUESS: Final = FixedRate(0.65)
_SIBLING_GUESS: Final = FixedRate(0.15)  # holds where all siblings before it missed
_SPEAKING_GUESS: Final = FixedRate(0.9)  # has a guess when asked, once it had none
_HOPE: Final = 2.0  # trials that this counts for
_LIKENESS: Final = 8.0  # how far one kind of guess speaks for the next, in trials
_MEMORY: Final = 200


class SharedAcceptance:
    """The kinds of guesses of `AcceptanceEstimate`, over all requests, and what to make of the
    drafter's own word."""

    def __init__(self) -> None:
        self._siblings = [SteadyRate(_FIRST_GUESS, _HOPE, _MEMORY)]
        self.again = SteadyRate(self._siblings[0], _LIKENESS, _MEMORY)
        self.deeper = SteadyRate(self.again, _LIKENESS, _MEMORY)
        self.speaking = SteadyRate(_SPEAKING_GUESS, _HOPE, _MEMORY)
        self.was_silent = False
        self.of_first, self.of_deeper = Evidence(), Evidence()

    def sibling(self, rank: int) -> SteadyRate:
        """The first guess after a miss (rank 0), and those beside it where all before missed."""
        while rank >= len(self._siblings):
            self._siblings.append(SteadyRate(_SIBLING_GUESS, _HOPE, _MEMORY))
        return self._siblings[rank]
