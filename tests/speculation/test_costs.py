"""Costs: what drafters, passes and rounds are expected to take, and what is learnt of them."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise

import pytest

from forerun.speculation.costs import Costs
from forerun.speculation.costs.draft_cost import DraftCost
from forerun.speculation.costs.pass_cost import PassCost
from forerun.speculation.step_times import StepTimes


def _costs(**drafters: DraftCost) -> Costs:
    return Costs(PassCost(((1, 1.0), (8, 2.0))), drafters)


def test_a_request_and_a_level_have_their_shares() -> None:
    costs = _costs(draft=DraftCost(0.05, 0.1))
    assert costs.draft_seconds("draft", 1, [1] * 4) == pytest.approx(0.45)
    assert costs.draft_seconds("unheard of", 1, [1] * 4) == pytest.approx(0.4)


def test_a_level_grows_with_the_batch_as_a_pass_does() -> None:
    costs = _costs(draft=DraftCost(0.0, 0.1))
    assert costs.draft_seconds("draft", 8, [8] * 3) == pytest.approx(0.6)


def test_an_unmeasured_drafter_is_learnt_from_its_answers() -> None:
    costs, rng = _costs(), random.Random(5)
    for _ in range(60):
        depth = rng.randint(1, 6)
        costs.observe_draft("draft", 1, [1] * depth, 0.02 + 0.3 * depth)
    assert costs.draft_seconds("draft", 1, [1] * 4) == pytest.approx(1.22, rel=0.02)


def test_answers_that_all_look_alike_are_enough() -> None:
    costs = _costs()
    for _ in range(500):
        costs.observe_draft("draft", 1, [1] * 4, 0.8)
    assert costs.draft_seconds("draft", 1, [1] * 4) == pytest.approx(0.8, rel=0.01)


def test_silence_has_a_price_too() -> None:
    costs = _costs()
    for _ in range(50):
        costs.observe_draft("lookup", 4, [], 0.004)
    assert costs.draft_seconds("lookup", 4, []) == pytest.approx(0.004, rel=0.02)


def test_one_slow_answer_changes_little() -> None:
    costs = _costs(draft=DraftCost(0.0, 0.1))
    for seconds in [0.4] * 20 + [4.0]:
        costs.observe_draft("draft", 1, [1] * 4, seconds)
    assert costs.draft_seconds("draft", 1, [1] * 4) == pytest.approx(0.4, rel=0.05)


def test_a_busy_machine_slows_drafters_too() -> None:
    costs = _costs(draft=DraftCost(0.0, 0.1))
    for _ in range(60):
        costs.observe_pass(1, 3.0)
    assert costs.draft_seconds("draft", 1, [1] * 4) == pytest.approx(1.2, rel=0.02)


def test_a_slow_first_answer_is_forgotten_once_a_fast_one_comes() -> None:
    costs = _costs()
    for seconds in (5.0, 0.001, 0.001, 0.001):
        costs.observe_draft("lookup", 1, [1] * 4, seconds)
    assert costs.draft_seconds("lookup", 1, [1] * 4) < 0.01


def test_the_rest_of_a_round_counts_by_requests_and_guesses() -> None:
    costs, rng = _costs(), random.Random(6)
    for _ in range(200):
        num_guesses = rng.randint(0, 6)
        costs.observe_rest(2, num_guesses, 0.2 + 0.05 * num_guesses)
    seconds = costs.round_seconds(2, 0, max_guesses=3)
    passes = [costs.target.seconds(2 + num) for num in range(4)]
    rest = [whole - alone for whole, alone in zip(seconds, passes, strict=True)]
    assert rest == pytest.approx([0.2, 0.25, 0.3, 0.35], rel=0.03)
    (plain,) = costs.round_seconds(2, 3, max_guesses=0)
    assert costs.least_price(2, 3) == pytest.approx(2 * (1 / 7 + 0.05) / plain, rel=0.03)


def test_one_slow_answer_does_not_undo_what_was_timed_before() -> None:
    cost = DraftCost(1e-3, 1e-4)
    cost.observe(1, 5, 10e-3)
    assert cost.seconds(1, 5) < 2 * 1.5e-3


def test_guesses_cost_more_behind_a_long_context() -> None:
    """Each guess adds what its row takes per token of context."""
    costs = _costs()
    costs.target.per_key = 0.004, 0.001
    short, costs.context_len = costs.round_seconds(1, 0, max_guesses=2), 500.0
    long = costs.round_seconds(1, 0, max_guesses=2)
    added = [after - before for after, before in zip(long, short, strict=True)]
    assert added == pytest.approx([2.0, 2.5, 3.0])
    assert costs.least_price(1, 0) == pytest.approx((1 / 7 + 0.5) / 3.0)


def test_a_context_that_is_known_is_no_surprise() -> None:
    """Rounds that take what their context predicts change neither speed nor shape of the curve."""
    costs, before = _costs(), _costs().target.points
    costs.target.per_key, costs.context_len = (0.004, 0.001), 500.0
    for num_guesses in (0, 3, 7) * 20:
        seconds = costs.round_seconds(1, 0, num_guesses)[-1]
        times = StepTimes(num_requests=1, num_tokens=1 + num_guesses, num_guesses=num_guesses)
        times.pass_seconds = seconds
        costs.observe_round(times)
    assert all(costs.target.seconds(size) == pytest.approx(seconds) for size, seconds in before)


def _observe(costs: Costs, num_guesses: int, seconds: float) -> None:
    times = StepTimes(num_requests=1, num_tokens=1 + num_guesses, num_guesses=num_guesses)
    times.pass_seconds = seconds
    costs.observe_round(times)


@pytest.mark.parametrize("per_key", [(0.002, 0.0004), (0.0005, 0.002), (0.0003, 0.0003)])
def test_what_a_context_adds_is_learnt_from_rounds(per_key: tuple[float, float]) -> None:
    """Rounds of long answers after short and long contexts correct whatever was timed at start."""
    costs, rng = _costs(), random.Random(2)
    costs.target.per_key = per_key
    for context_len in [50.0, 1000.0] * 10:
        for idx in range(40):
            num_guesses, costs.context_len = rng.choice((0, 0, 1, 3, 5)), context_len + idx
            keys = costs.context_len * (0.001 + 0.001 * num_guesses)
            _observe(costs, num_guesses, 1 + num_guesses / 7 + keys)
    for costs.context_len in (50.0, 1000.0):
        plain, *_, deep = costs.round_seconds(1, 0, 5)
        keys = costs.context_len * 0.001
        assert deep / plain == pytest.approx((12 / 7 + 6 * keys) / (1 + keys), rel=0.2)


def _prompt(num_tokens: int = 500, seconds: float = 60.0) -> StepTimes:
    return StepTimes(num_requests=1, num_tokens=num_tokens, pass_seconds=seconds)


def test_plain_rounds_that_are_noted_keep_their_contexts() -> None:
    """Plain rounds of two answers are learnt from together, each with its own context length."""
    costs = _costs()
    costs.target.per_key = 0.004, 0.001
    for costs.context_len in [2000.0, 50.0] * 30:
        costs.note_round(_prompt())
        for _ in range(17):
            times = StepTimes(num_requests=1, num_tokens=1)
            times.pass_seconds = costs.plain_seconds(1)
            costs.note_round(times)
            assert costs.target.speed == pytest.approx(1)


def test_a_context_that_costs_nothing_stays_so() -> None:
    costs, rng = _costs(), random.Random(2)
    costs.context_len = 8000.0
    for _ in range(200):
        num_guesses = rng.choice((0, 3, 7))
        _observe(costs, num_guesses, (1 + num_guesses / 7) * rng.lognormvariate(0, 0.05))
    plain, *_, deep = costs.round_seconds(1, 0, 7)
    assert deep / plain == pytest.approx(2, rel=0.05)


def test_prompts_say_nothing_of_what_a_context_adds() -> None:
    """A prompt's rows attend to each other, so its pass says nothing of a decode's context."""
    costs = _costs()
    costs.target.per_key, costs.context_len = (0.001, 0.001), 4000.0
    for _ in range(8):
        _observe(costs, 0, 5.0)
    for seconds in (2.5, 5.0, 7.0):
        costs.observe_round(_prompt(8, seconds))
    assert costs.target.per_key == pytest.approx((0.001, 0.001))


def test_nor_do_moments_in_which_the_machine_is_busy() -> None:
    costs = _costs()
    costs.target.per_key, costs.context_len = (0.001, 0.001), 4000.0
    _observe(costs, 3, 3 * (1 + 3 / 7 + 16))
    assert costs.target.per_key == (0.001, 0.001)


def test_in_a_batch_all_rounds_are_learnt_from() -> None:
    """In a batch prompts come at any time, so rounds after a prompt are learnt from too."""
    costs = _costs()
    costs.is_alone = False
    costs.observe_round(_prompt())
    before = costs.target.speed
    times = StepTimes(num_requests=2, num_tokens=2)
    times.pass_seconds = 1.2 * costs.target.seconds(2)
    costs.observe_round(times)
    assert costs.target.speed > before


def test_slow_passes_behind_a_prompt_do_not_make_guesses_seem_cheap() -> None:
    """All passes take two seconds more at first, which wears off with guesses and without."""
    costs, rng = _costs(), random.Random(3)
    for _ in range(30):
        costs.observe_round(_prompt())
        for idx in range(40):
            num_guesses = rng.choice((0, 0, 3, 7))
            _observe(costs, num_guesses, 1 + num_guesses / 7 + 2 * 0.8**idx)
    plain, *_, deep = costs.round_seconds(1, 0, 7)
    assert deep / plain == pytest.approx(2, rel=0.05)


def test_a_size_that_is_new_is_learnt_from_at_once() -> None:
    costs = _costs()
    costs.observe_round(_prompt())
    for _ in range(3):
        _observe(costs, 15, 8.0)
    assert costs.round_seconds(1, 0, 15)[-1] == pytest.approx(8, rel=0.1)


def test_where_all_answers_are_short_their_rounds_are_learnt_from() -> None:
    costs, rng = _costs(), random.Random(3)
    for _ in range(100):
        costs.observe_round(_prompt())
        for _ in range(10):
            num_guesses = rng.choice((0, 7))
            _observe(costs, num_guesses, 1 + num_guesses / 2)
    plain, *_, deep = costs.round_seconds(1, 0, 7)
    assert deep / plain == pytest.approx(4.5, rel=0.1)


def test_what_rounds_with_guesses_take_beyond_the_curve_is_learnt() -> None:
    """Plain rounds take what was calibrated; those with guesses take half a second more."""
    costs, rng = _costs(), random.Random(1)
    for _ in range(100):
        num = rng.choice((0, 0, 0, 3))
        times = StepTimes(num_requests=1, num_tokens=1 + num, num_guesses=num)
        times.pass_seconds = 1 + num / 7 + (0.5 if num else 0)
        costs.observe_round(times)
    plain, *_, deep = costs.round_seconds(1, 0, 3)
    assert plain == pytest.approx(1, abs=0.1)
    assert deep == pytest.approx(1.5 + 3 / 7, abs=0.1)


def _whole_round(seconds: float, num_requests: int = 1, num_told: int = 1) -> StepTimes:
    """Return the times of a round with four guesses per request, mostly spent in the pass."""
    guesses = 4 * num_requests
    times = StepTimes(num_requests=num_requests, num_guesses=guesses)
    times.num_tokens = num_requests + guesses
    times.drafts = [("head", num_told * num_requests, [num_requests] * 4, 0.25 * seconds)]
    times.pass_seconds, times.rest_seconds = 0.5 * seconds, 0.25 * seconds
    return times


def test_a_round_that_begins_early_takes_what_it_took_as_a_whole() -> None:
    costs = _costs(head=DraftCost(0.5, 0.5))
    costs.expect_whole("head", 1.25, 0.8)
    assert costs.round_seconds(1, 0, 0) == pytest.approx([0.8])
    for num in (1, 4):
        parts = costs.round_seconds(1, 0, num)[-1], costs.draft_seconds("head", 1, [1] * num)
        assert sum(parts) == pytest.approx(1.25)
    costs.is_alone = False  # rounds of several requests do not begin early
    assert costs.draft_seconds("head", 1, [1] * 4) == pytest.approx(2.5)
    costs.is_alone, costs.is_free = True, False  # nor do those under a grammar
    assert costs.draft_seconds("head", 1, [1] * 4) == pytest.approx(2.5)
    assert costs.round_seconds(1, 0, 0) == pytest.approx([1.0])
    for _ in range(100):
        costs.note_round(_whole_round(9.0))
    costs.is_free = True
    assert costs.round_seconds(1, 0, 0) == pytest.approx([0.8])
    assert costs.draft_seconds("head", 1, [1] * 4) + costs.round_seconds(1, 0, 4)[
        -1
    ] == pytest.approx(1.25)


def test_rounds_that_were_slow_once_are_not_given_up_for_good() -> None:
    costs = _costs(head=DraftCost(0.5, 0.5))
    costs.expect_whole("head", 1.0, 0.8)

    def whole() -> float:
        return costs.round_seconds(1, 0, 4)[-1] + costs.draft_seconds("head", 1, [1] * 4)

    for _ in range(100):
        costs.note_round(_whole_round(9.0))
    assert whole() > 5
    for _ in range(6000):
        costs.note_round(StepTimes(num_requests=1, num_tokens=1, pass_seconds=0.8))
    assert whole() == pytest.approx(1.0, rel=0.05)


def test_rounds_that_are_slow_each_time_are_asked_for_more_and_more_rarely() -> None:
    costs = _costs(head=DraftCost(0.5, 0.5))
    costs.expect_whole("head", 1.0, 0.8)
    tries = list[int]()
    for num in range(40_000):
        whole = costs.round_seconds(1, 0, 4)[-1] + costs.draft_seconds("head", 1, [1] * 4)
        if whole < 1.6:  # two plain rounds
            tries.append(num)
            costs.note_round(_whole_round(3.0))
        else:
            costs.note_round(StepTimes(num_requests=1, num_tokens=1, pass_seconds=0.8))
    gaps = [late - early for early, late in pairwise(tries) if late - early > 1]
    assert gaps == sorted(gaps)
    assert gaps[-1] > 20 * gaps[0]


@pytest.mark.parametrize("is_weighed", [False, True])
def test_whole_rounds_are_learnt_from_and_passes_are_not(is_weighed: bool) -> None:
    costs = _costs(head=DraftCost(0.5, 0.5))
    costs.expect_whole("head", 1.0, 0.8)
    observe = costs.observe_round if is_weighed else costs.note_round
    for _ in range(200):
        observe(_whole_round(9.0))  # after a plain round: not begun early
        observe(_whole_round(1.6))
        observe(_whole_round(9.0, num_told=0))  # a prompt was read first
        observe(StepTimes(num_requests=1, num_tokens=1, pass_seconds=1.0))
    whole = costs.round_seconds(1, 0, 4)[-1] + costs.draft_seconds("head", 1, [1] * 4)
    assert whole == pytest.approx(1.6, rel=0.01)
    assert costs.target.seconds(5) == pytest.approx(1 + 4 / 7, rel=0.01)
    assert costs.round_seconds(1, 0, 0) == pytest.approx([0.8])  # never two plain rounds in a row
    for _ in range(200):
        observe(StepTimes(num_requests=1, num_tokens=1, pass_seconds=0.6, rest_seconds=0.3))
    assert costs.round_seconds(1, 0, 0) == pytest.approx([0.9], rel=0.01)


def test_plain_rounds_have_slowed_down_no_more_than_those_with_guesses() -> None:
    costs = _costs(head=DraftCost(0.5, 0.5))
    costs.expect_whole("head", 1.0, 0.8)
    for _ in range(200):
        costs.note_round(StepTimes(num_requests=1, num_tokens=1, pass_seconds=2.0))
    assert costs.round_seconds(1, 0, 0) == pytest.approx([0.8])
    for _ in range(200):
        costs.note_round(_whole_round(1.5))
    assert costs.round_seconds(1, 0, 0) == pytest.approx([1.2], rel=0.01)
    for _ in range(200):
        costs.note_round(StepTimes(num_requests=1, num_tokens=1, pass_seconds=0.5))
    assert costs.round_seconds(1, 0, 0) == pytest.approx([0.5], rel=0.01)


def test_guesses_wait_for_a_plain_pass_that_was_begun_until_they_are_known_not_to() -> None:
    costs = _costs()
    costs.expect_waste()
    assert costs.round_seconds(1, 0, 3) == pytest.approx([1, *(2 + n / 7 for n in (1, 2, 3))])
    times = StepTimes(num_requests=1, num_guesses=3, num_tokens=4, pass_seconds=1 + 3 / 7)
    for _ in range(100):
        costs.observe_round(times)
    assert costs.round_seconds(1, 0, 3)[-1] == pytest.approx(1 + 3 / 7, rel=0.05)


def test_what_a_trial_took_beyond_the_parts_of_a_round_is_expected_from_the_start() -> None:
    costs = _costs(head=DraftCost(0.1, 0.05))
    before = costs.round_seconds(1, 0, 2)
    parts = before[2] - before[0] + costs.draft_seconds("head", 1, (1, 1))
    costs.expect_excess("head", 2, parts + 0.3)
    after = costs.round_seconds(1, 0, 2)
    assert after[0] == before[0]
    assert after[2] == pytest.approx(before[2] + 0.3)
    costs.expect_excess("head", 2, parts - 0.3)  # a trial at a faster moment
    assert costs.round_seconds(1, 0, 2) == before


def test_a_text_is_read_first_where_there_is_enough_to_come() -> None:
    costs = _costs(head=DraftCost(0.1, 0.05))
    assert costs.may_read("head", 10_000, 1)  # never timed
    cost = DraftCost(0.1, 0.05)
    cost.per_row = 0.01 * costs.plain_seconds(1)
    costs = _costs(head=cost)
    assert costs.may_read("head", 499, 100)
    assert not costs.may_read("head", 501, 100)


def test_slow_moments_say_little_of_rounds_with_guesses() -> None:
    costs, rng = _costs(), random.Random(0)
    before = costs.round_seconds(1, 0, 3)
    for _ in range(400):  # one round in ten is held up for as long as five take
        slow = 5.0 if rng.random() < 0.1 else 1.0
        times = StepTimes(lambda: 0.0, 1, 4, 3, before[3] * slow)
        costs.observe_round(times)
        costs.observe_round(StepTimes(lambda: 0.0, 1, 1, 0, before[0]))
    after = costs.round_seconds(1, 0, 3)
    assert after[3] / after[0] < 1.1 * before[3] / before[0]


def test_of_rounds_that_were_met_often_a_part_is_learnt_from() -> None:
    """Of a size met often one round in four moves the curve; a new size does at once."""
    costs, before = _costs(), _costs().target
    for num in range(32 + 3):
        costs.observe_round(_slow_round(3, slowdown=1.0 if num < 32 else 1.1))
    assert costs.target.seconds(4) == pytest.approx(before.seconds(4))
    costs.observe_round(_slow_round(3))
    assert costs.target.seconds(4) > 1.01 * before.seconds(4)
    learnt = costs.target.seconds(6)
    costs.observe_round(_slow_round(5))
    assert costs.target.seconds(6) != learnt


def _slow_round(num_guesses: int, slowdown: float = 1.1) -> StepTimes:
    seconds = slowdown * _costs().target.seconds(1 + num_guesses)
    return StepTimes(lambda: 0.0, 1, 1 + num_guesses, num_guesses, seconds)


def _not_alone(costs: Costs) -> None:
    costs.is_alone = False


def _far_on(costs: Costs) -> None:
    costs.context_len = 4000.0


def _faster(costs: Costs) -> None:
    """Note two fast plain rounds in a row, which are learnt from as a whole."""
    for _ in range(2):
        costs.note_round(StepTimes(lambda: 0.0, 1, 1, 0, 0.5))


def _noted(costs: Costs) -> None:
    for _ in range(8):
        costs.note_round(StepTimes(lambda: 0.0, 1, 1, 0, 1.2))


@pytest.mark.parametrize(
    "happens",
    [
        Costs.expect_waste,
        lambda costs: costs.expect_excess("draft", 2, 3.0),
        lambda costs: costs.expect_whole("head", 1.5, 0.7),
        lambda costs: costs.observe_round(_slow_round(3)),
        lambda costs: costs.observe_rest(1, 2, 0.5),
        _faster,
        _noted,
        _not_alone,
        _far_on,
    ],
)
def test_what_was_reckoned_before_is_forgotten_when_it_changes(
    happens: Callable[[Costs], None],
) -> None:
    """Costs that had cached an estimate answer the same as costs that were never asked."""
    asked, fresh = _costs(), _costs()
    for costs in (asked, fresh):
        costs.target.per_key = 0.004, 0.001
        costs.expect_whole("head", 1.5, 0.8)
        costs.observe_round(_whole_round(1.5))
    before = asked.round_seconds(1, 0, 3), asked.least_price(1, 0)
    for costs in (asked, fresh):
        happens(costs)
    after = asked.round_seconds(1, 0, 3), asked.least_price(1, 0)
    assert after == (fresh.round_seconds(1, 0, 3), fresh.least_price(1, 0))
    assert after != before


def test_more_guesses_than_were_asked_for_before_are_reckoned() -> None:
    costs = _costs()
    assert costs.round_seconds(1, 0, 2) == costs.round_seconds(1, 0, 40)[:3]
    assert len(costs.round_seconds(1, 0, 40)) == 41


def test_of_answers_that_were_heard_often_a_part_is_learnt_from() -> None:
    """Of draft times seen often one in four is learnt from; those of a new size are at once."""
    costs = _costs()
    for num in range(32 + 3):
        costs.observe_draft("draft", 1, [1] * 4, 0.4 if num < 32 else 0.5)
    learnt = costs.draft_seconds("draft", 1, [1] * 4)
    assert learnt == pytest.approx(0.4)
    costs.observe_draft("draft", 1, [1] * 8, 1.0)
    deep = costs.draft_seconds("draft", 1, [1] * 8)
    assert deep > 0.7
    costs.observe_draft("draft", 1, [1] * 4, 0.5)
    assert costs.draft_seconds("draft", 1, [1] * 4) > learnt


def _plain_round(head_start: float = 0.0, pass_seconds: float = 1.0) -> StepTimes:
    times = StepTimes(num_requests=1, num_tokens=1, pass_seconds=pass_seconds, rest_seconds=0.3)
    times.head_start = head_start
    return times


def _guess_round() -> StepTimes:
    times = StepTimes(num_requests=1, num_tokens=2, num_guesses=1)
    times.pass_seconds, times.rest_seconds = 1 + 1 / 7, 0.3
    return times


@pytest.mark.parametrize("is_weighed", [False, True])
def test_a_plain_round_has_a_head_start_that_it_loses_behind_guesses(is_weighed: bool) -> None:
    costs = _costs()
    observe = costs.observe_round if is_weighed else costs.note_round
    for _ in range(200):
        observe(_plain_round(head_start=0.2))
    plain, guess = costs.round_seconds(1, 0, 1)
    assert plain == pytest.approx(1.3 - 0.2, rel=0.01)
    assert guess == pytest.approx(1 + 1 / 7 + 0.3 + 0.2, rel=0.01)  # the next loses its start
    for _ in range(200):
        costs.observe_round(_guess_round())
    _, guess = costs.round_seconds(1, 0, 1)
    assert guess == pytest.approx(1 + 1 / 7 + 0.3, rel=0.01)  # no plain round followed these
    for _ in range(200):
        observe(_plain_round())
    assert costs.round_seconds(1, 0, 0)[0] == pytest.approx(1.3, rel=0.01)


def test_prompts_say_nothing_of_the_head_start_of_plain_rounds() -> None:
    costs = _costs()
    for _ in range(200):
        costs.note_round(_plain_round(head_start=0.2))
    before = costs.round_seconds(1, 0, 0)[0]
    for _ in range(50):
        prompt = StepTimes(num_requests=1, num_tokens=64, pass_seconds=10.0, rest_seconds=0.3)
        costs.note_round(prompt)
        costs.note_round(_plain_round())  # the first round after the prompt
    assert costs.round_seconds(1, 0, 0)[0] == pytest.approx(before, rel=0.02)


def test_nothing_is_learnt_of_passes_that_went_on_while_nobody_asked() -> None:
    costs = _costs()
    for _ in range(200):
        costs.note_round(_plain_round(head_start=5.0, pass_seconds=0.1 + 5.0))
    assert costs.target.seconds(1) == pytest.approx(1.0)
    assert costs.round_seconds(1, 0, 1) == pytest.approx([1.0, 1 + 1 / 7])
