"""One request alone is given what any batch would be."""

from __future__ import annotations

import numpy as np
import pytest

from forerun.drafters import Budget
from forerun.speculation.choice import Reason
from forerun.speculation.controller import Controller
from forerun.speculation.costs import Costs, PassCost
from forerun.types import Proposal

CURVES = {
    "steep": ((1, 1.0), (2, 1.4), (9, 5.0)),
    "flat": ((1, 1.0), (9, 1.2)),
    "stepped": ((1, 1.0), (4, 1.05), (5, 2.0), (12, 2.1)),
}


def pick(rng: np.random.Generator) -> Proposal:
    num = int(rng.integers(1, 9))
    return Proposal.picked(rng.integers(0, 50, num).tolist(), rng.uniform(0.05, 1, num).tolist())


@pytest.mark.parametrize("curve", CURVES.values(), ids=CURVES)
def test_it_is_the_choice_of_the_allocator(curve: tuple[tuple[int, float], ...]) -> None:
    rng, reasons = np.random.default_rng(5), set()
    for num_drafters in (1, 2, 3) * 60:
        one, other = (Controller(Costs(PassCost(curve))) for _ in range(2))
        picks = [(f"drafter {idx}", pick(rng)) for idx in range(num_drafters)]
        ways = [w for name, made in picks for w in one.ways(0, name, Budget(8), made)]
        (expected,) = one.choose([ways])
        found = other.choose_alone(picks)
        assert found._replace(expected_seconds=0, expected_tokens=0, gain=0) == expected._replace(
            expected_seconds=0, expected_tokens=0, gain=0
        )
        for name in ("expected_seconds", "expected_tokens", "gain"):
            assert getattr(found, name) == pytest.approx(getattr(expected, name))
        reasons.add(found.reason)
    assert Reason.PAYS in reasons
    assert Reason.NOTHING_PAYS in reasons or curve is not CURVES["steep"]


def test_a_plain_pass_is_timed_once_in_a_while() -> None:
    controller = Controller(Costs(PassCost(CURVES["flat"])))
    controller._num_since_plain = 64
    choice = controller.choose_alone([("drafter", Proposal.picked([1, 2], [0.9, 0.9]))])
    assert (choice.reason, choice.drafter, choice.depth) == (Reason.BASELINE, None, 0)
