"""The ways in which a request may guess, what it spends in one round, and why."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple

from forerun.drafters import Budget
from forerun.speculation.acceptance import Acceptance
from forerun.types import Proposal


class Reason(StrEnum):
    """Why a choice was made, in a word for `stats` and `--trace`."""

    PAYS = "pays"  # this gives the most tokens per second
    NOTHING_PAYS = "nothing pays"  # guesses cost more than they would bring
    SILENT = "silent"  # no drafter has a guess
    NO_ROOM = "no room"  # the answer ends here, or the pass is full
    PROBE = "probe"  # to find out whether a costly drafter pays
    BASELINE = "baseline"  # to find out what a plain pass costs
    FIXED = "fixed"  # there is no controller, so the depth is that of the configuration
    NOT_LOOKED = "not looked"  # recent looks found nothing, so this round is plain without one


class Way(NamedTuple):
    """One way for a request to guess: `gains[k]` guesses expected to be accepted on level k + 1."""

    drafter: str
    num_branches: int
    width: int  # guesses on each level
    gains: Sequence[float]  # never rising
    pick: Proposal | None  # what it guesses; None: the drafter has to be asked, which is costly
    acceptance: Acceptance

    @property
    def is_costly(self) -> bool:
        return self.pick is None

    @property
    def speaking(self) -> float:
        """The chance that the drafter guesses at all when it is asked."""
        return self.acceptance.speaking.value if self.pick is None else 1.0

    def surplus(self, price: float) -> float:
        """Return what is left of the gains, at best, if every guess costs `price` tokens."""
        price *= self.width
        return self.speaking * sum(max(0.0, gain - price) for gain in self.gains)


class Choice(NamedTuple):
    """Which drafter guesses for a request, how deep and how wide; depth 0 is a plain round.

    `pick` is the drafter's guess if it was asked already; then it is not asked again.
    `expected_seconds` is for the whole round of all requests; 0 if nothing was weighed.
    """

    reason: Reason
    drafter: str | None = None
    depth: int = 0
    num_branches: int = 1
    num_trees: int = 1  # that each branch merges
    pick: Proposal | None = None
    expected_tokens: float = 0.0
    expected_seconds: float = 0.0
    gain: float = 0.0  # expected tokens beyond what plain decoding emits in the guesses' time
    least_chance: float = 0.0  # below it a guess is not worth its time: see `Budget`

    @classmethod
    def of(
        cls,
        way: Way,
        depth: int,
        reason: Reason,
        seconds: float,
        price: float,
        least_chance: float = 0.0,
    ) -> Choice:
        """Choose `way` to `depth`. The round takes `seconds`, and each guess takes the time of
        `price` plain tokens."""
        accepted = way.speaking * sum(way.gains[:depth])
        return cls(
            reason,
            way.drafter,
            depth,
            way.num_branches,
            way.width // way.num_branches,
            way.pick and way.pick.pruned(depth, way.num_branches),
            1 + accepted,
            seconds,
            accepted - price * depth * way.width,
            least_chance,
        )

    @property
    def budget(self) -> Budget:
        """The budget for the drafter, if it has yet to be asked."""
        return Budget(self.depth, self.num_branches, least_chance=self.least_chance)

    @property
    def num_guesses(self) -> int:
        """How many guesses the target has to score at most."""
        if self.pick is not None:
            return len(self.pick)
        return self.depth * self.num_branches * self.num_trees

    def within(self, num_guesses: int) -> Choice:
        """Return the same choice with at most `num_guesses` guesses."""
        if num_guesses >= self.num_guesses:
            return self
        num_guesses //= self.num_trees
        if num_guesses == 0:
            return NO_ROOM
        num_branches = min(self.num_branches, num_guesses)
        depth = num_guesses // num_branches
        pick = self.pick and self.pick.pruned(depth, num_branches)
        return self._replace(depth=depth, num_branches=num_branches, pick=pick)

    @property
    def summary(self) -> str:
        """In words, like "pays: suffix to 4 × 2", or "nothing pays"."""
        return _summary(self.reason, self.drafter, self.depth, self.num_branches)

    def __str__(self) -> str:
        if self.expected_seconds <= 0:
            return self.summary
        milliseconds = self.expected_seconds * 1e3
        return (
            f"{self.summary}, {self.expected_tokens:.2f} tokens expected in {milliseconds:.1f} ms"
        )


@lru_cache(maxsize=256)
def _summary(reason: Reason, drafter: str | None, depth: int, num_branches: int) -> str:
    if drafter is None or depth == 0:
        return str(reason)
    branches = f" × {num_branches}" if num_branches > 1 else ""
    return f"{reason}: {drafter} to {depth}{branches}"


# Choices for which nothing was weighed.
SILENT: Final = Choice(Reason.SILENT)
NO_ROOM: Final = Choice(Reason.NO_ROOM)
NOT_LOOKED: Final = Choice(Reason.NOT_LOOKED)
