"""What the controller chooses, and why."""

from __future__ import annotations

import pytest

from forerun.planning.choice import ALONE, Candidate, Choice, Company, Reason, Standing
from forerun.planning.controller import Controller, Limits
from forerun.planning.cost_curve import CostCurve
from forerun.planning.cost_model import CostModel

DEEP = Limits(8)
CHEAP, COSTLY = Candidate("lookup", 8), Candidate("draft")


def _controller(limits: Limits = DEEP, level: float = 0.3) -> Controller:
    costs = CostModel(CostCurve(((1, 1.0), (9, 1.8))))
    costs.calibrate_drafter("lookup", lambda _: 1e-5, 8)
    costs.calibrate_drafter("draft", lambda depth: level * depth, 8)
    return Controller(limits, costs)


def _standing(*candidates: Candidate, request: int = 0, max_depth: int = 99) -> Standing:
    return Standing(request, max_depth, candidates)


def _round(controller: Controller, standing: Standing, *, holds: bool) -> Choice:
    """One round in which every guess holds, or none does."""
    (choice,) = controller.plan([standing])
    num_accepted = choice.depth if holds else 0
    if choice.drafter == "draft":
        controller.observe_draft("draft", 1, [1] * choice.depth, 0.3 * choice.depth)
        controller.observe_verified(standing.request, "draft", choice.depth, num_accepted)
    controller.observe_pass(1 + choice.depth, 1, 1 + 0.1 * choice.depth)
    controller.emitted(standing.request, [7] * (num_accepted + 1))
    return choice


def _offer(controller: Controller, *, holds: bool) -> None:
    controller.offered(0, "lookup", [[7 if holds else 8] * 8])


def test_cheap_is_what_costs_next_to_nothing() -> None:
    controller = _controller()
    assert controller.is_cheap("lookup", 1)
    assert not controller.is_cheap("draft", 1)


def test_guesses_that_hold_are_made_to_the_ceiling() -> None:
    controller = _controller(Limits(5))
    for _ in range(30):
        _offer(controller, holds=True)
        choice = _round(controller, _standing(CHEAP), holds=True)
    assert (choice.drafter, choice.depth, choice.reason) == ("lookup", 5, Reason.PAYS)
    assert choice.expected_tokens > 5
    assert choice.expected_seconds == pytest.approx(1.5, rel=0.05)


def test_guesses_that_miss_are_no_longer_made() -> None:
    controller = _controller()
    for _ in range(12):
        _offer(controller, holds=False)
        choice = _round(controller, _standing(CHEAP), holds=False)
    assert (choice.drafter, choice.depth, choice.reason) == (None, 0, Reason.NOTHING_PAYS)


def test_silent_scoring_turns_a_cheap_drafter_on_again() -> None:
    controller = _controller()
    for _ in range(100):
        _offer(controller, holds=False)
        _round(controller, _standing(CHEAP), holds=False)
    depths = []
    for _ in range(8):
        _offer(controller, holds=True)
        depths.append(_round(controller, _standing(CHEAP), holds=True).depth)
    assert depths[0] == 0
    assert depths[-1] > 0


def test_beliefs_decide() -> None:
    controller = _controller()
    for _ in range(100):
        controller.beliefs.observe(0, "lookup", 8, 0)
    assert controller.plan([_standing(CHEAP)])[0].depth == 0
    for _ in range(10):
        controller.beliefs.observe(0, "lookup", 8, 8)
    assert controller.plan([_standing(CHEAP)])[0].depth > 0


def test_probes_of_a_costly_drafter_stay_within_their_share() -> None:
    controller = _controller()
    choices = [_round(controller, _standing(COSTLY), holds=False) for _ in range(3000)]
    probes = [choice for choice in choices if choice.reason is Reason.PROBE]
    assert len(probes) > 20
    assert controller.allowance.seconds_spent < 0.008 * 3100 + 1


def test_no_probe_where_even_certain_guesses_would_not_pay() -> None:
    controller = _controller(level=1.5)
    for _ in range(500):
        assert _round(controller, _standing(COSTLY), holds=False).depth == 0


def test_a_costly_drafter_is_found_again_by_probes() -> None:
    controller = _controller()
    for _ in range(300):
        _round(controller, _standing(COSTLY), holds=False)
    depths = [_round(controller, _standing(COSTLY), holds=True).depth for _ in range(300)]
    assert depths[-1] >= 4


def test_a_cheap_drafter_that_does_not_offer_is_probed() -> None:
    controller = _controller(level=1e-4)
    assert controller.is_cheap("draft", 1)
    reasons = []
    for _ in range(400):
        (choice,) = controller.plan([_standing(COSTLY)])
        reasons.append(choice.reason)
        if choice.depth:
            controller.observe_verified(0, "draft", choice.depth, 0)
        controller.observe_pass(1 + choice.depth, 1, 1 + 0.1 * choice.depth)
    assert reasons[200:].count(Reason.PROBE) > 3


def test_plain_passes_are_looked_at_now_and_then() -> None:
    controller = _controller()
    choices = [_round(controller, _standing(COSTLY), holds=True) for _ in range(600)]
    baselines = [choice for choice in choices if choice.reason is Reason.BASELINE]
    assert 3 <= len(baselines) <= 12
    assert all(choice.depth == 0 for choice in baselines)


@pytest.mark.parametrize(
    ("company", "is_compared"), [(Company(num_prompt_tokens=64), False), (Company(2), True)]
)
def test_a_pass_with_prompts_is_no_baseline(company: Company, is_compared: bool) -> None:
    """One with requests that do not guess may be."""
    controller, reasons = _controller(level=0.05), set()
    num_others = sum(company)
    for _ in range(100):
        (choice,) = controller.plan([_standing(COSTLY)], company)
        reasons.add(choice.reason)
        controller.observe_verified(0, "draft", choice.depth, choice.depth)
        num_tokens = 1 + num_others + choice.depth
        controller.observe_pass(num_tokens, 1 + company.num_idle, 0.9 + 0.1 * num_tokens)
    assert Reason.PAYS in reasons
    assert (Reason.BASELINE in reasons) is is_compared


def test_the_better_drafter_is_chosen() -> None:
    controller = _controller(level=0.05)
    for _ in range(20):
        controller.beliefs.observe(0, "lookup", 8, 1)
        controller.observe_verified(0, "draft", 8, 8)
    assert controller.plan([_standing(CHEAP, COSTLY)])[0].drafter == "draft"
    silent = _standing(Candidate("lookup", 0), COSTLY)
    assert controller.plan([silent])[0].drafter == "draft"


def test_a_new_request_starts_from_the_others() -> None:
    controller = _controller()
    for _ in range(50):
        controller.beliefs.observe(0, "lookup", 8, 0)
    controller.end(0)
    assert controller.plan([_standing(CHEAP, request=1)])[0].depth == 0


def test_branches_are_used_where_siblings_hold() -> None:
    controller = _controller(Limits(2, num_branches=2))
    for _ in range(60):
        controller.beliefs.observe(0, "lookup", 1, 1, branch=0)
        controller.beliefs.observe(0, "lookup", 1, 1, branch=1)
    choice = controller.plan([_standing(CHEAP)])[0]
    assert choice.num_branches == 2
    assert "to 2 × 2, " in str(choice)


@pytest.mark.parametrize("is_adaptive", [True, False])
def test_a_request_may_allow_fewer_branches(is_adaptive: bool) -> None:
    controller = _controller(Limits(2, num_branches=3, is_adaptive=is_adaptive))
    for _ in range(60):
        for branch in range(3):
            controller.beliefs.observe(0, "lookup", 1, 1, branch=branch)
    (choice,) = controller.plan([_standing(CHEAP)._replace(max_branches=2)])
    assert choice.num_branches == 2


@pytest.mark.parametrize(
    ("standing", "reason"),
    [
        (_standing(CHEAP, max_depth=0), Reason.NO_ROOM),
        (_standing(Candidate("lookup", 0)), Reason.SILENT),
        (_standing(), Reason.SILENT),
    ],
)
def test_why_nothing_is_guessed(standing: Standing, reason: Reason) -> None:
    choice = _controller().plan([standing])[0]
    assert (choice.depth, choice.reason) == (0, reason)
    assert str(choice) == reason


def test_a_guess_must_hold_more_often_the_more_requests_share_the_pass() -> None:
    controller = _controller()
    alone, crowded = controller.least_chance(1, ALONE), controller.least_chance(8, ALONE)
    assert 0 < alone < crowded
    assert controller.least_chance(3, Company(num_idle=5)) == crowded
    assert controller.least_chance(8, Company(num_prompt_tokens=50)) < crowded


def test_those_who_cannot_guess_are_company_for_the_others() -> None:
    silent, full = _standing(Candidate("lookup", 0)), _standing(CHEAP, max_depth=0)
    able = _standing(CHEAP)
    together = _controller().plan(
        [silent._replace(request=1), able._replace(request=2), full._replace(request=3)]
    )
    (alone,) = _controller().plan([able._replace(request=2)], Company(num_idle=2))
    assert [choice.reason for choice in together] == [Reason.SILENT, alone.reason, Reason.NO_ROOM]
    assert together[1] == alone
    assert alone.expected_seconds > _controller().plan([able])[0].expected_seconds


def test_not_adaptive_means_the_first_drafter_that_speaks_to_the_full_depth() -> None:
    controller = _controller(Limits(6, is_adaptive=False))
    for _ in range(50):
        controller.beliefs.observe(0, "draft", 6, 0)
    choice = controller.plan([_standing(Candidate("lookup", 0), COSTLY)])[0]
    assert (choice.drafter, choice.depth, choice.reason) == ("draft", 6, Reason.FIXED)
    assert controller.plan([_standing(COSTLY, max_depth=2)])[0].depth == 2


def test_same_observations_same_choices() -> None:
    runs = []
    for _ in range(2):
        controller = _controller()
        runs.append([_round(controller, _standing(COSTLY), holds=i % 3 > 0) for i in range(200)])
    assert runs[0] == runs[1]


def test_the_end_of_a_request_forgets_it() -> None:
    controller = _controller()
    _offer(controller, holds=True)
    _round(controller, _standing(CHEAP, COSTLY), holds=True)
    controller.end(0)
    assert not controller.beliefs.is_offering(0, "lookup")


def test_a_pass_of_prompts_only_plans_nothing() -> None:
    assert _controller().plan([], Company(num_prompt_tokens=256)) == []


def test_a_drafter_that_nobody_measured_is_asked_to_find_out() -> None:
    controller = _controller()
    for _ in range(4):
        assert controller.is_cheap("new", 1)
        controller.observe_draft("new", 1, [1] * 8, 0.5)
    assert not controller.is_cheap("new", 1)


def test_a_lookup_that_is_mostly_silent_stays_cheap() -> None:
    """Whatever a long answer takes, short ones are what asking costs."""
    controller = _controller()
    for _ in range(5):
        controller.observe_draft("new", 1, [], 0.01)
    controller.observe_draft("new", 1, [1] * 8, 0.1)
    assert controller.is_cheap("new", 1)
    for _ in range(60):
        controller.observe_draft("new", 1, [1] * 8, 0.1)
    assert not controller.is_cheap("new", 1)


def test_a_slow_first_answer_does_not_make_a_lookup_costly() -> None:
    controller = _controller()
    for seconds in (0.5, 0.02, 0.01, 0.01):
        controller.observe_draft("new", 1, [], seconds)
    assert controller.is_cheap("new", 1)


def test_guesses_that_make_the_rest_of_the_round_slow_do_not_pay() -> None:
    """The pass alone would say that they do."""
    controller = _controller()
    for rounds in range(60):
        _offer(controller, holds=rounds % 3 > 0)
        choice = _round(controller, _standing(CHEAP), holds=rounds % 3 > 0)
        controller.observe_rest(1, choice.depth, 0.1 + 2.0 * choice.depth)
    assert choice.depth == 0


def test_the_drafters_word_decides_which_guess_is_made() -> None:
    controller = _controller()
    for idx in range(200):
        word, holds = ((0.95, True), (0.1, False))[idx % 2]
        controller.offered(0, "lookup", [[7 if holds else 8] * 8], [word] * 8)
        choice = _round(controller, _standing(CHEAP), holds=holds)
        if idx > 100 and choice.reason is not Reason.BASELINE:
            assert (choice.depth > 0) is holds


def test_where_all_guesses_hold_the_ceiling_is_reached_within_a_few_rounds() -> None:
    controller = _controller()
    for _ in range(100):
        controller.beliefs.observe(0, "lookup", 8, 0)  # what was before
    controller.end(0)
    depths = []
    for _ in range(12):
        controller.offered(1, "lookup", [[7] * 8], [0.9] * 8)
        (choice,) = controller.plan([_standing(CHEAP, request=1)])
        controller.observe_pass(1 + choice.depth, 1, 1 + 0.1 * choice.depth)
        controller.emitted(1, [7] * (choice.depth + 1))
        depths.append(choice.depth)
    assert 8 in depths[:8], depths


def test_a_costly_drafter_that_has_nothing_to_say_is_no_longer_asked() -> None:
    controller = _controller(level=0.05)
    num_asked = 0
    for _ in range(300):
        (choice,) = controller.plan([_standing(COSTLY)])
        if choice.depth:
            num_asked += 1
            controller.observe_draft("draft", 1, [], 0.02)
            controller.observe_silence(0, "draft")
        controller.observe_pass(1, 1, 1.0)
    assert num_asked < 60


def test_a_silent_drafter_does_not_keep_another_from_guessing() -> None:
    controller = _controller(level=0.05)
    controller.costs.calibrate_drafter("tables", lambda depth: 0.01 * depth, 8)
    used = []
    for _ in range(200):
        (choice,) = controller.plan([_standing(Candidate("tables"), COSTLY)])
        used.append(choice.drafter)
        if choice.drafter == "tables":
            controller.observe_silence(0, "tables")
        elif choice.drafter == "draft":
            controller.observe_verified(0, "draft", choice.depth, choice.depth)
        controller.observe_pass(1 + choice.depth, 1, 1 + 0.1 * choice.depth)
    assert used[100:].count("draft") > 80


@pytest.mark.parametrize(("num_parts", "pays"), [(1, True), (2, False)])
def test_merged_drafters_pay_for_all_their_chains(num_parts: int, pays: bool) -> None:
    """A token of a pass costs half a plain one, and guesses nearly always hold."""
    costs = CostModel(CostCurve(((1, 1.0), (9, 5.0))))
    costs.calibrate_drafter("merge", lambda _: 1e-6, 8)
    controller = Controller(Limits(1), costs)
    for _ in range(50):
        controller.observe_verified(0, "merge", 1, 1)
    (choice,) = controller.plan([_standing(Candidate("merge", None, num_parts))])
    assert (choice.reason is Reason.PAYS) is pays
