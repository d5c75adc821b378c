"""The drafter that guesses from the caller's prediction."""

from __future__ import annotations

from typing import Final

from forerun.drafters.base import Budget, OneByOne, RequestView
from forerun.drafters.prediction.alignment import Alignment, risen
from forerun.drafters.prediction.spelling import Spell
from forerun.errors import InvalidOption
from forerun.types import ROOT, Proposal, ProposalBuilder

PREDICTION: Final = "prediction"  # the drafter's name


class GivenPrediction(OneByOne[Alignment]):
    """Copies the prediction from the place where the output is.

    A branch ends where the chance that all its guesses are accepted falls below `min_chance` or the
    budget's `least_chance`. A request without a prediction gets no guesses.
    """

    picks = says_chances = True

    def __init__(self, min_chance: float = 0.1, spell: Spell | None = None) -> None:
        """With `spell`, which returns a token's bytes, the same text in other tokens than the
        prediction's is no deviation, and these tokens are expected from then on."""
        super().__init__()
        self._spell = spell
        if not 0 <= min_chance < 1:
            raise InvalidOption(f"min_chance={min_chance} is not allowed; give 0 ≤ x < 1.")
        self._min_chance = min_chance

    def _remember(self, request: RequestView) -> Alignment:
        return Alignment(request.prediction, self._spell)

    def may_guess(self, request: RequestView, budget: Budget) -> bool:
        """Return whether a guess at the likeliest place would be likely enough."""
        alignment = self._memories[request.id]
        least_chance = max(self._min_chance, budget.least_chance)
        if not alignment.may_reach(least_chance, len(request.output)):
            return False
        alignment.read(request.output)
        place = next(alignment.places(), None)
        if place is None or budget.num_branches > 1:
            return place is not None
        return alignment.chance(alignment.odds_at(place), alignment.num_missed) >= least_chance

    def _guess(self, request: RequestView, alignment: Alignment, budget: Budget) -> Proposal:
        least_chance = max(self._min_chance, budget.least_chance)
        if not alignment.may_reach(least_chance, len(request.output)):
            return Proposal.empty()
        alignment.read(request.output)
        builder = ProposalBuilder()
        branches: set[int] = set()
        left = 1.0  # chance that none of the branches so far is right
        for place in alignment.places() if budget.depth else ():
            token = alignment.prediction[place]
            if token in branches:
                continue
            branches.add(token)
            odds = alignment.odds_at(place)
            chance = left * alignment.chance(odds, alignment.num_missed)
            _add_branch(builder, alignment, place, chance, odds, least_chance, budget.depth)
            left -= chance
            if len(branches) == budget.num_branches:
                break
        return builder.build()


def _add_branch(
    builder: ProposalBuilder,
    alignment: Alignment,
    place: int,
    chance: float,
    odds: float,
    least_chance: float,
    depth: int,
) -> None:
    node, chance_of_all = ROOT, 1.0
    for token in alignment.prediction[place : place + depth]:
        chance_of_all *= chance
        if chance_of_all < least_chance:
            return
        node = builder.add(node, token, chance=chance)
        odds = risen(odds)
        chance = alignment.chance(odds)
