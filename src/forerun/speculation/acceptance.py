"""How likely a drafter's guesses are to be accepted, learnt from how often they were."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, repeat
from operator import mul
from typing import Final

from forerun.types import ROOT, Proposal

_MEMORY: Final = 20  # trials that a request's rate covers
_SHARED_MEMORY: Final = 150  # trials that the rate of all requests covers
_PRIOR_WEIGHT: Final = 6.0  # trials that the rate of all requests counts for in that of one
START_WEIGHT: Final = 2.0  # trials that a start value counts for, if it was not observed

Start = tuple[float, float, float]
_START: Final = (0.5, 0.7, START_WEIGHT)


class Rate:
    """How often something happens, from recent trials and a prior that counts for some trials."""

    __slots__ = ("_keep", "_num_accepted", "_num_trials", "_prior", "_weight")

    def __init__(self, prior: float | Rate, weight: float = START_WEIGHT) -> None:
        self._prior, self._weight = prior, weight
        self._keep = 1 - 1 / (_SHARED_MEMORY if isinstance(prior, float) else _MEMORY)
        self._num_accepted = self._num_trials = 0.0

    @property
    def value(self) -> float:
        prior = self._prior if isinstance(self._prior, float) else self._prior.value
        return (self._weight * prior + self._num_accepted) / (self._weight + self._num_trials)

    def observe(self, is_accepted: bool) -> None:
        """Count one trial; it counts for the rate of all requests, the prior, as well."""
        self.fade()
        self._num_accepted += is_accepted
        self._num_trials += 1
        if isinstance(self._prior, Rate):
            self._prior.observe(is_accepted)

    def fade(self) -> None:
        """Let old trials count a little less, so that the prior counts for more."""
        self._num_accepted *= self._keep
        self._num_trials *= self._keep


class Acceptance:
    """The acceptance of one drafter's guesses, as a Markov chain of two states.

    A text is being copied or it is not, and each guess shows which: after an accepted guess the
    next one has another chance than after a miss. In rounds without a known guess the state moves
    as a guess would have moved it on average.

    All requests of a drafter share one such model (`shared`), from which that of each request
    starts. `start` has the rate after a miss, the rate after an accepted guess, and the number of
    trials that these count for.
    """

    def __init__(self, shared: Acceptance | None = None, start: Start = _START) -> None:
        self._weight: float = max(_PRIOR_WEIGHT, shared._weight) if shared else start[2]
        self._after_miss: Rate = Rate(shared._after_miss if shared else start[0], self._weight)
        self._after_accept: Rate = Rate(shared._after_accept if shared else start[1], self._weight)
        # How often it guesses when asked; how often it makes one more guess after accepted ones;
        # how often a further sibling is right once those before it were not.
        self.speaking: Rate = Rate(shared.speaking if shared else 1.0, self._weight)
        self._going_on: Rate = Rate(shared._going_on if shared else 1.0, self._weight)
        self._siblings: Rate = shared._siblings if shared else Rate(0.15)
        self._is_accepting = 0.0  # the chance that a latest guess was, or would have been, accepted
        self.num_unseen = 0  # rounds since a guess was judged

    def gains(
        self, depth: int, num_branches: int = 1, chances: Sequence[float] = ()
    ) -> list[float]:
        """Return the expected accepted guesses on each level 1 … `depth`; they never rise.

        `chances` are the drafter's own estimates for its first branch, if it gives any.
        """
        first = chances[0] if chances else self._first()
        if num_branches > 1:
            first = 1 - (1 - first) * (1 - self._siblings.value) ** (num_branches - 1)
        further = self._going_on.value * self._after_accept.value
        below = chances[1:depth] if chances else repeat(further, depth - 1)
        return list(accumulate(below, mul, initial=first))

    def _first(self) -> float:
        accepting = self._is_accepting
        return accepting * self._after_accept.value + (1 - accepting) * self._after_miss.value

    def begin_round(self) -> None:
        if self.num_unseen:
            self._is_accepting = self._first()
            self._after_miss.fade()
            self._after_accept.fade()
        self.num_unseen += 1

    def observe(
        self, proposal: Proposal, tokens: Sequence[int], *, depth: int = 0, is_merged: bool = False
    ) -> None:
        """Learn from guesses whose text went on with `tokens`.

        All guesses up to the first miss are judged, whether the target scored them or not. `depth`
        is what the drafter was asked for; it may have made fewer. With `is_merged`, siblings count
        as one guess, which is right if one of them is.
        """
        node = ROOT
        for level, token in enumerate(tokens):
            guesses = proposal.tree.children(node)
            if 0 < level < depth:
                self._going_on.observe(bool(guesses))
            if not guesses:
                return
            found = proposal.child_with_token(node, token)
            is_first = found is not None and (is_merged or found == guesses[0])
            rate = self._after_accept if self._is_accepting > 0.5 else self._after_miss
            rate.observe(is_first)
            if not is_first and not is_merged:
                num_tried = len(guesses) if found is None else 1 + guesses.index(found)
                for sibling in guesses[1:num_tried]:
                    self._siblings.observe(sibling == found)
            self.num_unseen, self._is_accepting = 0, float(found is not None)
            if found is None:
                return
            node = found
