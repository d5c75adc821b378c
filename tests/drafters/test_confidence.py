"""How sure a head is, and what is left out for it."""

from __future__ import annotations

import numpy as np
import pytest

from forerun.drafters import Budget
from forerun.drafters.heads.confidence import Confidence
from forerun.types import Origin, SamplingParams, Verdict
from tests.contracts.test_drafters import HIDDEN_SIZE, V, View, block, eagle3, propose


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


@pytest.mark.parametrize("kind", [eagle3, block])
@pytest.mark.parametrize("temperature", [0, 0.8])
def test_guesses_that_are_not_worth_it_are_left_out(kind: type, temperature: float) -> None:
    """All of a chain's chances are known, so it ends where their product falls below the least."""
    params = SamplingParams(temperature=temperature, seed=1)
    lengths = []
    for least in (0.0, 0.05, 0.3, 1.0):
        drafter, view = kind(V, "cpu-1"), View((1, 2, 3, 4, 1, 2), params=params)
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


@pytest.mark.parametrize(("kind", "least"), [(eagle3, 0.85), (block, 0.97)])
def test_what_was_left_out_is_judged_as_well(kind: type, least: float) -> None:
    """Told that it was right again and again, a head that said nothing says more."""
    drafter, view = kind(V, "cpu-1"), View((1, 2, 3, 4, 1, 2))
    drafter.begin(view)
    twin = kind(V, "cpu-1")
    num_handed_out = []
    for _ in range(40):
        first = View(tuple(view.tokens), id=99)
        twin.begin(first)
        guess = propose(twin, first, Budget(1)).tokens[0]
        twin.end(first)
        num_handed_out.append(len(propose(drafter, view, Budget(1, least_chance=least))))
        verdict = Verdict((), (guess,), Origin.PLAIN)
        view = view.after(verdict)
        drafter.commit(view, verdict)
    assert not any(num_handed_out[:2])
    assert any(num_handed_out[-10:])


@pytest.mark.parametrize("kind", [eagle3, block])
def test_an_answer_that_reads_much_text_first_is_no_measure_of_its_guesses(kind: type) -> None:
    drafter, view = kind(V, "cpu-1").drafter, View((1, 2, 3))
    rows = dict.fromkeys(drafter.layers, np.zeros((20, HIDDEN_SIZE), np.float32))
    drafter.begin(view)
    drafter.tapped(view, 0, rows)
    assert drafter.is_behind(view)
    drafter.tapped(view, 0, {layer: found[:2] for layer, found in rows.items()})  # it came again
    assert not drafter.is_behind(view)
