"""How confident a head is, and which guesses are left out because of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from forerun.drafters import NOBODY, Budget
from forerun.drafters.heads import HEAD_KINDS
from forerun.drafters.heads.confidence import Confidence
from forerun.types import Origin, Proposal, SamplingParams, Verdict
from tests.contracts.test_drafters import HIDDEN_SIZE, Tapping, V, View, head, propose


@pytest.mark.parametrize("is_drawn", [False, True])
def test_what_is_sure_is_believed_until_the_text_says_otherwise(is_drawn: bool) -> None:
    confidence = Confidence()
    chances = [confidence.chance(idx / 10, 0, is_drawn=is_drawn) for idx in range(11)]
    assert chances == sorted(chances)
    assert chances[0] < 0.2
    assert chances[-1] > 0.9
    for idx in range(300):
        confidence.observe(0.95, 0, is_drawn=is_drawn, is_hit=idx % 4 == 0)
    assert confidence.chance(0.95, 0, is_drawn=is_drawn) == pytest.approx(0.25, abs=0.05)
    assert confidence.chance(0.95, 1, is_drawn=is_drawn) > 0.9
    assert confidence.chance(0.95, 0, is_drawn=not is_drawn) > 0.9


@pytest.mark.parametrize("kind", sorted(set(HEAD_KINDS) - {"distilled"}))
@pytest.mark.parametrize("temperature", [0, 0.8])
def test_guesses_that_are_not_worth_it_are_left_out(kind: str, temperature: float) -> None:
    """A chain ends where the product of its chances falls below the least that pays."""
    params = SamplingParams(temperature=temperature, seed=1)
    lengths = []
    for least in (0.0, 0.05, 0.3, 1.0):
        drafter, view = head(kind, V, "cpu-1"), View((1, 2, 3, 4, 1, 2), params=params)
        drafter.begin(view)
        proposal = propose(drafter, view, Budget(4, least_chance=least))
        product = 1.0
        for chance in proposal.chances:
            product *= chance
            assert product >= least
        lengths.append(len(proposal))
    assert lengths[0] == 4
    assert lengths[-1] == 0
    assert lengths == sorted(lengths, reverse=True)


@pytest.mark.parametrize("kind", sorted(set(HEAD_KINDS) - {"distilled"}))
def test_what_was_left_out_is_judged_as_well(kind: str) -> None:
    """A head whose guesses are all left out, but keep coming true, grows more confident than one
    that meets the text for the first time, and proposes what that one leaves out."""
    view, twin = View((1, 2, 3, 4, 1, 2)), head(kind, V, "cpu-1")
    told = [head(kind, V, "cpu-1") for _ in range(2)]
    for drafter in told:
        drafter.begin(view)
    for _ in range(49):
        verdict = Verdict((), _met(twin, view, Budget(1)).tokens[:1], Origin.PLAIN)
        for drafter in told:
            assert not len(propose(drafter, view, Budget(1, least_chance=1.0)))
            drafter.commit(view.after(verdict), verdict)
        view = view.after(verdict)
    fresh, grown = (
        _met(twin, view, Budget(1)).chances[0],
        propose(told[0], view, Budget(1)).chances[0],
    )
    assert grown > fresh + 0.01
    between = Budget(1, least_chance=(grown + fresh) / 2)
    assert len(propose(told[1], view, between)) == 1
    assert not len(_met(twin, view, between))


def _met(drafter: Tapping, view: View, budget: Budget) -> Proposal:
    """The proposal for this text, as of a request that has just begun."""
    first = View(tuple(view.tokens), id=99)
    drafter.begin(first)
    proposal = propose(drafter, first, budget)
    drafter.end(first)
    return proposal


@pytest.mark.parametrize("kind", ["eagle3", "block", "mtp"])
def test_it_knows_how_much_text_its_next_answer_reads_first(kind: str) -> None:
    drafter, view = head(kind, V, "cpu-1").drafter, View((1, 2, 3))
    rows = dict.fromkeys(drafter.layers, np.zeros((20, HIDDEN_SIZE), np.float32))
    drafter.begin(view)
    drafter.tapped(view, 0, rows)
    assert drafter.num_behind(view) == 20
    drafter.tapped(view, 0, {layer: found[:2] for layer, found in rows.items()})  # it came again
    assert drafter.num_behind(view) == 2


def test_texts_that_are_run_for_their_time_teach_nothing() -> None:
    """Wrong guesses in a request's text lower the confidence; in a run for NOBODY they do not."""
    confidence, wrong = Confidence(), Verdict((), (3,), Origin.RECOVERED)
    before = confidence.chance(0.95, 0, is_drawn=False)
    view = View((1, 2), params=SamplingParams(temperature=0))
    for _ in range(20):
        confidence.judge(replace(view, id=NOBODY), [(1, 0.95)], wrong)
    assert confidence.chance(0.95, 0, is_drawn=False) == before
    confidence.judge(view, [(1, 0.95)], wrong)
    assert confidence.chance(0.95, 0, is_drawn=False) < before
