"""A given prediction: the caller says what the output will be, roughly.

The output is followed along the prediction. Where it deviates, the place where it goes on is found
again: after a changed, an inserted or a left-out stretch, or after a move to another part.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final

from forerun.drafters.base import Budget, OneByOne, RequestView
from forerun.errors import InvalidOption
from forerun.types import ROOT, Proposal, ProposalBuilder

PREDICTION: Final = "prediction"  # the drafter's name

_FIRST_RUN: Final = 3  # a caller's word counts as so many tokens that were right
_LONGEST_RUN: Final = 16  # longer ones are not told apart
_REACH: Final = 8  # a run of r > 1 tokens is believed up to _REACH · r² tokens away
_SHORT_REACH: Final = 2  # a single token, which may well stand there by chance
_STAYING: Final = 3  # tokens that a run elsewhere must be longer by
_MAX_PLACES: Final = 32  # places of one token that are looked at, the nearest
_LOOK_AHEAD: Final = 8  # tokens that may have been left out, for further branches

# How often the next token of the prediction comes, after runs of 0, 1, 2, 3-4, 5-8 and more
# tokens that did, before this output says otherwise.
_PRIOR: Final = (0.3, 0.5, 0.7, 0.85, 0.92, 0.96)
_PRIOR_WEIGHT: Final = 4.0  # observations that the prior counts for
_DECAY: Final = 0.05  # of older observations with each new one


class GivenPrediction(OneByOne["Alignment"]):
    """Copies on from the place in the prediction where the output stands.

    A guess is made while it and all before it are right with at least `min_chance` and what
    the budget asks for. A request without a prediction gets no guesses.
    """

    picks = True

    def __init__(self, min_chance: float = 0.25) -> None:
        super().__init__()
        if not 0 <= min_chance < 1:
            raise InvalidOption(f"min_chance={min_chance} is not allowed; give 0 ≤ x < 1.")
        self._min_chance = min_chance

    def _remember(self, request: RequestView) -> Alignment:
        return Alignment(request.prediction)

    def may_guess(self, request: RequestView, budget: Budget) -> bool:
        """Not where the output left the prediction, and the likeliest place is none to trust."""
        alignment = self._memories[request.id]
        alignment.read(request.output)
        place = next(alignment.places(), None)
        if place is None or budget.num_branches > 1:
            return place is not None
        return alignment.chance(place[1]) >= max(self._min_chance, budget.least_chance)

    def _guess(self, request: RequestView, alignment: Alignment, budget: Budget) -> Proposal:
        alignment.read(request.output)
        builder = ProposalBuilder()
        least_chance = max(self._min_chance, budget.least_chance)
        branches: set[int] = set()
        left = 1.0  # the chance that none of the branches so far is right
        for place, run in alignment.places() if budget.depth else ():
            token = request.prediction[place]
            if token in branches:
                continue
            branches.add(token)
            first = left * alignment.chance(run)
            left -= first
            self._add_branch(builder, alignment, place, run, first, least_chance, budget.depth)
            if len(branches) == budget.num_branches:
                break
        return builder.build()

    @staticmethod
    def _add_branch(
        builder: ProposalBuilder,
        alignment: Alignment,
        place: int,
        run: int,
        chance: float,
        least_chance: float,
        depth: int,
    ) -> None:
        node, chance_of_all = ROOT, 1.0
        for idx, token in enumerate(alignment.prediction[place : place + depth]):
            if idx:
                chance = alignment.chance(run + idx)
            chance_of_all *= chance
            if chance_of_all < least_chance:
                return
            node = builder.add(node, token, chance=chance)


class Alignment:
    """Where an output stands in its prediction; a function of both, read token by token.

            prediction   a b c d e f g h
            output       a b X Y e f          place = 6, run = 2

    `place` is where the output is expected to go on, and `run` how many were right before it.
    Since the last of these, the output may have gone on anywhere from `_earliest` (what came is
    inserted) to `place` (what came replaces as much).
    """

    def __init__(self, prediction: Sequence[int]) -> None:
        self.prediction = prediction
        self.place = 0
        self.run = _FIRST_RUN
        self._earliest = 0
        self._num_read = 0
        self._runs: dict[int, int] = {}  # place -> tokens before it that end the output as well
        self._found: dict[int, list[int]] = {}  # token -> where it stands, ascending
        for idx, token in enumerate(prediction):
            self._found.setdefault(token, []).append(idx)
        self._hits = [chance * _PRIOR_WEIGHT for chance in _PRIOR]
        self._trials = [_PRIOR_WEIGHT] * len(_PRIOR)

    def read(self, output: Sequence[int]) -> None:
        for idx in range(self._num_read, len(output)):
            self._read(output[idx])
        self._num_read = len(output)

    def chance(self, run: int) -> float:
        """That the next token of the prediction comes after a run of so many."""
        kind = _kind(run)
        return self._hits[kind] / self._trials[kind]

    def places(self) -> Iterator[tuple[int, int]]:
        """(place, run): where the output may go on, the likeliest first."""
        yield from self._within((self.place, self.run))
        for place in sorted(self._runs, key=lambda place: (-self._runs[place], place)):
            yield from self._within((place, self._runs[place]))
        yield from self._within((self._earliest, 0))
        for place in range(self.place + 1, self.place + _LOOK_AHEAD):
            yield from self._within((place, 0))

    def _within(self, found: tuple[int, int]) -> Iterator[tuple[int, int]]:
        if found[0] < len(self.prediction):
            yield found

    def _read(self, token: int) -> None:
        is_hit = self._observe(token)
        self._runs = {
            idx + 1: min(_LONGEST_RUN, self._runs.get(idx, 0) + 1) for idx in self._near(token)
        }
        if is_hit:  # a long run elsewhere must be longer than this one to count for more
            self._runs[self.place + 1] = min(_LONGEST_RUN, max(1, self.run + 1))
        self.place = min(self.place + 1, len(self.prediction))
        if is_hit:
            self._earliest = self.place
        best = min(self._runs, key=self._rank, default=None)
        if best is None or self._distance(best) > _reach(self._runs[best]):
            self.run = 0
        else:
            self.place, self.run = best, self._runs[best]
            self._earliest = best

    def _observe(self, token: int) -> bool:
        if self.place >= len(self.prediction):
            return False
        is_hit = self.prediction[self.place] == token
        kind = _kind(self.run)
        self._hits[kind] += is_hit - _DECAY * self._hits[kind]
        self._trials[kind] += 1 - _DECAY * self._trials[kind]
        return is_hit

    def _near(self, token: int) -> Sequence[int]:
        found = self._found.get(token, ())
        if len(found) <= _MAX_PLACES:
            return found
        first = max(0, bisect_left(found, self.place) - _MAX_PLACES // 2)
        return found[first : first + _MAX_PLACES]

    def _rank(self, place: int) -> tuple[int, int, int]:
        """The longest run, then the nearest, then the first."""
        run = self._runs[place] + _STAYING * (place == self.place)
        return -run, self._distance(place), place

    def _distance(self, place: int) -> int:
        return max(0, self._earliest - place, place - self.place)


def _reach(run: int) -> int:
    return _REACH * run**2 if run > 1 else _SHORT_REACH


def _kind(run: int) -> int:
    """Runs that are judged together have one number."""
    return min(len(_PRIOR) - 1, run if run < 3 else (run - 1).bit_length() + 1)
