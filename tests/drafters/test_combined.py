"""Drafters made of drafters: each part's draws keep their q, and each part gets its verdict."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from forerun.drafters import Budget, Merge, NgramTables, PromptLookup, RandomTokens, RequestView
from forerun.types import Acceptance, Origin, Proposal, SamplingParams, Verdict
from tests.contracts.test_drafters import View

TEXT = (1, 2, 3, 1, 2, 0, 1, 2)
REJECTION = SamplingParams(acceptance=Acceptance.REJECTION)


def proposed(
    drafter: Merge | NgramTables | PromptLookup | RandomTokens, budget: Budget
) -> Proposal:
    view = View(TEXT, params=REJECTION)
    drafter.begin(view)
    return drafter.propose([view], [budget])[0]


def test_a_merged_guess_keeps_the_law_it_was_drawn_from() -> None:
    """Without its q a drawn guess would count as picked: lawful, and accepted less often."""
    budget = Budget(2, num_branches=2)
    merged = proposed(Merge([NgramTables(5, (1,)), RandomTokens(5), PromptLookup(1, 2)]), budget)
    parts = [
        proposed(NgramTables(5, (1,)), budget),
        proposed(RandomTokens(5), Budget(2, 2, first_draw=1 << 16)),
        proposed(PromptLookup(1, 2), budget),
    ]
    own = [(part, draw) for part in parts for draw in part.draws]
    assert len(merged.draws) == len(own) == 4 + 4 + len(parts[2])
    for drawn, (part, draw) in zip(merged.draws, own, strict=True):
        assert merged.path_tokens(drawn.node) == part.path_tokens(draw.node)
        if draw.probs_q is None:
            assert drawn.probs_q is None
        else:
            np.testing.assert_array_equal(drawn.probs_q, draw.probs_q)


class Listening:
    """Guesses a chain, and notes how much of it was accepted."""

    picks = False
    num_requests = 0

    def __init__(self, tokens: tuple[int, ...]) -> None:
        self.tokens = tokens
        self.paths: list[tuple[int, ...]] = []

    def begin(self, request: RequestView) -> None: ...

    def propose(self, _: Sequence[RequestView], budgets: Sequence[Budget]) -> list[Proposal]:
        return [Proposal.chain(self.tokens[: budget.depth]) for budget in budgets]

    def commit(self, request: RequestView, verdict: Verdict) -> None:  # noqa: ARG002
        self.paths.append(verdict.path)

    def end(self, request: RequestView) -> None: ...


@pytest.mark.parametrize(
    ("accepted", "heard"),
    [((1, 2, 3), [(0, 1, 2), (0, 1), ()]), ((1, 2, 9), [(0, 1), (0, 1, 2), ()])],
)
def test_each_part_hears_how_far_its_own_guesses_held(
    accepted: tuple[int, ...], heard: list[tuple[int, ...]]
) -> None:
    parts = [Listening((1, 2, 3)), Listening((1, 2, 9)), Listening((7,))]
    merge, view = Merge(parts), View(TEXT)
    merge.begin(view)
    proposal = merge.propose([view], [Budget(3)])[0]
    node, path = -1, []
    for token in accepted:
        found = proposal.child_with_token(node, token)
        assert found is not None
        path.append(node := found)
    merge.commit(view, Verdict(tuple(path), (*accepted, 0), Origin.BONUS))
    assert [part.paths for part in parts] == [[one] for one in heard]
