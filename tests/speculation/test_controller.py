"""What the controller chooses, and why."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Sequence
from pathlib import Path

import pytest

from forerun.drafters import Budget
from forerun.speculation.choice import SILENT, Choice, Reason
from forerun.speculation.controller import Controller
from forerun.speculation.costs import Costs
from forerun.speculation.costs.draft_cost import DraftCost
from forerun.speculation.costs.pass_cost import PassCost
from forerun.speculation.step_times import StepTimes
from forerun.types import Draw, Proposal, Tree

DEEP = Budget(8)
RIGHT, WRONG = 7, 8  # every token of the text is 7


def _controller(level: float = 0.3) -> Controller:
    drafters = {"lookup": DraftCost(1e-5, 0.0), "draft": DraftCost(0.0, level)}
    return Controller(Costs(PassCost(((1, 1.0), (9, 1.8))), drafters))


def _pick(*, holds: bool, chance: float | None = None) -> Proposal:
    draws = tuple(Draw(node, None, chance) for node in range(8))
    return Proposal(Tree.chain(8), (RIGHT if holds else WRONG,) * 8, draws)


def _times(num_guesses: int = 0, **seconds: float) -> StepTimes:
    """Return the times of a step with one request; each guess adds a tenth of a pass."""
    times = StepTimes(lambda: 0.0, 1, 1 + num_guesses, num_guesses, 1 + 0.1 * num_guesses)
    times.rest_seconds = seconds.get("rest", 0.0)
    return times


def _round(
    controller: Controller,
    *,
    holds: bool,
    pick: Proposal | None = None,
    budget: Budget = DEEP,
    rest: float = 0.0,
    request: int = 0,
) -> Choice:
    """Run a round of one request in which all guesses are right, or none."""
    drafter = "draft" if pick is None else "lookup"
    (choice,) = controller.choose([controller.ways(request, drafter, budget, pick)])
    guesses = Proposal.chain([RIGHT if holds else WRONG] * choice.depth)
    times = _times(choice.depth, rest=rest * (1 + choice.depth))
    if choice.drafter == "draft":
        times.drafts.append(("draft", 1, [1] * choice.depth, 0.3 * choice.depth))
    controller.commit(request, choice, guesses, [RIGHT] * (choice.depth * holds + 1))
    controller.observe(times)
    return choice


def _learn(controller: Controller, drafter: str, num: int, *, holds: bool) -> None:
    """Let the controller observe `num` rounds in which all of the drafter's guesses are right, or
    none."""
    guesses = Proposal.chain([RIGHT if holds else WRONG] * 8)
    for _ in range(num):
        controller.acceptance(0, drafter).observe(guesses, [RIGHT] * 8)


def test_guesses_that_are_accepted_are_made_to_the_ceiling() -> None:
    controller = _controller()
    for _ in range(30):
        choice = _round(controller, holds=True, pick=_pick(holds=True), budget=Budget(5))
    assert (choice.drafter, choice.depth, choice.reason) == ("lookup", 5, Reason.PAYS)
    assert choice.pick is not None
    assert len(choice.pick) == 5
    assert choice.expected_tokens > 5
    assert choice.expected_seconds == pytest.approx(1.5, rel=0.05)


def test_guesses_that_miss_are_no_longer_made() -> None:
    controller = _controller()
    for _ in range(12):
        choice = _round(controller, holds=False, pick=_pick(holds=False))
    assert (choice.drafter, choice.depth, choice.reason) == (None, 0, Reason.NOTHING_PAYS)


def test_scoring_by_the_text_turns_a_cheap_drafter_on_again() -> None:
    controller = _controller()
    for _ in range(100):
        _round(controller, holds=False, pick=_pick(holds=False))
    depths = [_round(controller, holds=True, pick=_pick(holds=True)).depth for _ in range(8)]
    assert depths[0] == 0
    assert depths[-1] > 0


def test_what_was_learnt_decides() -> None:
    controller = _controller()
    _learn(controller, "lookup", 100, holds=False)
    ways = controller.ways(0, "lookup", DEEP, _pick(holds=True))
    assert controller.choose([ways])[0].depth == 0
    _learn(controller, "lookup", 10, holds=True)
    ways = controller.ways(0, "lookup", DEEP, _pick(holds=True))
    assert controller.choose([ways])[0].depth > 0


def test_probes_of_a_costly_drafter_stay_within_their_share() -> None:
    controller = _controller()
    choices = [_round(controller, holds=False) for _ in range(3000)]
    probes = [choice for choice in choices if choice.reason is Reason.PROBE]
    assert len(probes) > 20
    assert controller.probe_seconds < 0.008 * 3100 + 1


def test_no_probe_where_even_certain_guesses_would_not_pay() -> None:
    controller = _controller(level=1.5)
    for _ in range(500):
        assert _round(controller, holds=False).depth == 0


def test_a_costly_drafter_is_found_again_by_probes() -> None:
    controller = _controller()
    for _ in range(300):
        _round(controller, holds=False)
    depths = [_round(controller, holds=True).depth for _ in range(300)]
    assert max(depths[-20:]) >= 4


def test_a_drafter_that_does_not_pick_is_probed_however_cheap_it_is() -> None:
    controller = _controller(level=1e-4)
    assert controller.costs.is_cheap("draft", 1)
    reasons = [_round(controller, holds=False).reason for _ in range(400)]
    assert reasons[200:].count(Reason.PROBE) > 3


def test_plain_passes_are_timed_now_and_then() -> None:
    controller = _controller()
    choices = [_round(controller, holds=True) for _ in range(600)]
    baselines = [choice for choice in choices if choice.reason is Reason.BASELINE]
    assert 8 <= len(baselines) <= 10
    assert all(choice.depth == 0 for choice in baselines)


@pytest.mark.parametrize(
    ("num_idle", "num_prompt_tokens", "is_compared"), [(0, 64, False), (2, 0, True)]
)
def test_a_pass_with_prompts_is_no_baseline(
    num_idle: int, num_prompt_tokens: int, is_compared: bool
) -> None:
    """A pass that reads prompts is no baseline; one beside requests without guesses may be."""
    controller, reasons = _controller(level=0.05), set()
    for _ in range(100):
        ways = controller.ways(0, "draft", DEEP)
        (choice,) = controller.choose([ways], num_idle, num_prompt_tokens)
        reasons.add(choice.reason)
        guesses = Proposal.chain([RIGHT] * choice.depth)
        controller.commit(0, choice, guesses, [RIGHT] * (choice.depth + 1))
        num_tokens = 1 + num_idle + num_prompt_tokens + choice.depth
        seconds = 0.9 + 0.1 * num_tokens
        controller.observe(StepTimes(lambda: 0.0, 1 + num_idle, num_tokens, choice.depth, seconds))
    assert Reason.PAYS in reasons
    assert (Reason.BASELINE in reasons) is is_compared


def test_the_better_drafter_is_chosen() -> None:
    controller = _controller(level=0.05)
    _learn(controller, "lookup", 20, holds=False)
    _learn(controller, "draft", 20, holds=True)
    draft = controller.ways(0, "draft", DEEP)
    lookup = controller.ways(0, "lookup", DEEP, _pick(holds=True))
    assert controller.choose([[*lookup, *draft]])[0].drafter == "draft"
    silent = controller.ways(0, "lookup", DEEP, Proposal.empty())
    assert controller.choose([[*silent, *draft]])[0].drafter == "draft"


def test_a_new_request_starts_from_the_others() -> None:
    controller = _controller()
    _learn(controller, "lookup", 50, holds=False)
    controller.end(0)
    ways = controller.ways(1, "lookup", DEEP, _pick(holds=True))
    assert controller.choose([ways])[0].depth == 0


def _siblings(num: int, num_levels: int = 2) -> Proposal:
    """Return `num` chains from the root, which start with 0, 1, 2, …"""
    parents = [-1] * num + list(range(num * (num_levels - 1)))
    tokens = [*range(num), *[RIGHT] * num * (num_levels - 1)]
    return Proposal(Tree(tuple(parents)), tuple(tokens), tuple(map(Draw, range(len(tokens)))))


@pytest.mark.parametrize(("max_branches", "chosen"), [(3, 2), (2, 2), (1, 1)])
def test_branches_are_used_where_siblings_are_accepted(max_branches: int, chosen: int) -> None:
    """Never more branches than the request allows; here a third is not worth its place."""
    controller = _controller()
    for idx in range(90):
        controller.acceptance(0, "lookup").observe(_siblings(3), [idx % 3, RIGHT])
    ways = controller.ways(0, "lookup", Budget(2, max_branches), _siblings(3))
    (choice,) = controller.choose([ways])
    assert choice.num_branches == chosen
    assert choice.pick is not None
    assert len(choice.pick) == choice.depth * chosen
    assert max_branches == 1 or f"to 2 × {chosen}, " in str(choice)


def test_branches_that_a_pick_does_not_have_are_not_chosen() -> None:
    controller = _controller()
    ways = controller.ways(0, "lookup", Budget(8, 3), _pick(holds=True))
    assert [way.num_branches for way in ways] == [1]


@pytest.mark.parametrize("pick", [Proposal.empty(), None])
def test_where_nothing_can_be_guessed_the_choice_is_silent(pick: Proposal | None) -> None:
    controller = _controller()
    ways = controller.ways(0, "lookup", DEEP, pick) if pick is not None else []
    assert controller.choose([ways]) == [SILENT]
    assert str(SILENT) == "silent"


def test_those_who_cannot_guess_count_with_a_token_each() -> None:
    def choices(controller: Controller, num_silent: int, num_idle: int) -> Sequence[Choice]:
        ways = controller.ways(2, "lookup", DEEP, _pick(holds=True))
        return controller.choose([*[[]] * num_silent, ways], num_idle)

    (alone,) = choices(_controller(), 0, 0)
    first, second, among_silent = choices(_controller(), 2, 0)
    (among_idle,) = choices(_controller(), 0, 2)
    assert first == second == SILENT
    assert among_silent == among_idle
    assert 0 < among_idle.depth < alone.depth


def test_same_observations_same_choices() -> None:
    runs = []
    for _ in range(2):
        controller = _controller()
        runs.append([_round(controller, holds=i % 3 > 0) for i in range(200)])
    assert runs[0] == runs[1]


def test_the_end_of_a_request_forgets_it() -> None:
    controller = _controller()
    _learn(controller, "draft", 30, holds=False)
    before = controller.acceptance(0, "draft").gains(1)
    controller.end(0)
    assert controller.acceptance(0, "draft").gains(1) != before


def test_a_pass_of_prompts_only_chooses_nothing() -> None:
    assert _controller().choose([], num_prompt_tokens=256) == []


def test_a_drafter_that_nobody_measured_is_asked_to_find_out() -> None:
    costs = _controller().costs
    for _ in range(4):
        assert costs.is_cheap("new", 1)
        costs.observe_draft("new", 1, [1] * 8, 0.5)
    assert not costs.is_cheap("new", 1)


def test_a_lookup_that_is_mostly_silent_stays_cheap() -> None:
    """The cost of asking is what calls without a guess take, not what long guesses take."""
    costs = _controller().costs
    for _ in range(5):
        costs.observe_draft("new", 1, [], 0.01)
    costs.observe_draft("new", 1, [1] * 8, 0.1)
    assert costs.is_cheap("new", 1)
    for _ in range(60):
        costs.observe_draft("new", 1, [1] * 8, 0.1)
    assert not costs.is_cheap("new", 1)


def test_a_slow_first_answer_does_not_make_a_lookup_costly() -> None:
    costs = _controller().costs
    for seconds in (0.5, 0.02, 0.01, 0.01):
        costs.observe_draft("new", 1, [], seconds)
    assert costs.is_cheap("new", 1)


def test_a_guess_must_be_accepted_more_often_the_more_requests_share_the_pass() -> None:
    costs = _controller().costs
    alone, crowded = costs.least_price(1, 0), costs.least_price(8, 0)
    assert 0 < alone < crowded
    assert costs.least_price(8, num_prompt_tokens=50) < crowded


def test_guesses_that_make_the_rest_of_the_round_slow_do_not_pay() -> None:
    """By the pass alone they would pay."""
    controller = _controller()
    for idx in range(60):
        holds = idx % 3 > 0
        choice = _round(controller, holds=holds, pick=_pick(holds=holds), rest=2.0)
    assert choice.depth == 0


def test_the_drafters_own_chances_decide_which_guess_is_made() -> None:
    controller = _controller()
    for idx in range(200):
        chance, holds = ((0.95, True), (0.02, False))[idx % 2]
        choice = _round(controller, holds=holds, pick=_pick(holds=holds, chance=chance))
        if choice.reason is not Reason.BASELINE:
            assert (choice.depth > 0) is holds


def test_where_all_guesses_are_accepted_the_ceiling_is_reached_within_a_few_rounds() -> None:
    controller = _controller()
    _learn(controller, "lookup", 100, holds=False)  # an earlier answer
    controller.end(0)
    depths = [
        _round(controller, holds=True, pick=_pick(holds=True), request=1).depth for _ in range(14)
    ]
    assert 8 in depths, depths


def test_a_costly_drafter_that_has_nothing_to_say_is_only_probed() -> None:
    controller, asked = _controller(level=0.05), []
    for _ in range(300):
        (choice,) = controller.choose([controller.ways(0, "draft", DEEP)])
        times = _times()
        if choice.depth:
            asked.append(choice.reason)
            times.drafts.append(("draft", 1, [], 0.02))
        controller.commit(0, choice, Proposal.empty(), [RIGHT])
        controller.observe(times)
    assert set(asked[100:]) == {Reason.PROBE}
    assert 0.02 * len(asked[100:]) < 0.01 * 200


def test_one_that_had_no_chance_to_speak_is_not_taken_for_silent() -> None:
    controller = _controller(level=0.05)
    (choice,) = controller.choose([controller.ways(0, "draft", DEEP)])
    assert choice.depth > 0
    for _ in range(100):
        controller.commit(0, choice, Proposal.empty(), [RIGHT], is_waiting=True)
    assert controller.acceptance(0, "draft").speaking.value == 1


def test_a_silent_drafter_does_not_keep_another_from_guessing() -> None:
    controller = _controller(level=0.05)
    used = []
    for _ in range(200):
        names = ("tables", "draft")
        ways = [way for name in names for way in controller.ways(0, name, DEEP)]
        (choice,) = controller.choose([ways])
        used.append(choice.drafter)
        guesses = Proposal.chain([RIGHT] * choice.depth if choice.drafter == "draft" else [])
        controller.commit(0, choice, guesses, [RIGHT] * (len(guesses) + 1))
        controller.observe(_times(len(guesses)))
    assert used[100:].count("draft") > 80


@pytest.mark.parametrize(("num_trees", "pays"), [(1, True), (2, False)])
def test_merged_drafters_pay_for_all_their_chains(num_trees: int, pays: bool) -> None:
    """A token in a pass costs half a plain pass, and guesses are nearly always right."""
    costs = Costs(PassCost(((1, 1.0), (9, 5.0))), {"merge": DraftCost(1e-6, 0.0)})
    controller = Controller(costs)
    _learn(controller, "merge", 50, holds=True)
    (choice,) = controller.choose([controller.ways(0, "merge", Budget(1), None, num_trees)])
    assert (choice.reason is Reason.PAYS) is pays


def _pass_by(controller: Controller, num: int, pass_seconds: float) -> None:
    """Observe plain rounds without choosing among ways."""
    for _ in range(num):
        controller.choose([[]])
        times = _times(rest=0.2)
        times.pass_seconds = pass_seconds
        controller.observe(times)


def test_plain_rounds_that_nobody_weighed_are_learnt_from_together() -> None:
    controller = _controller()
    before = controller.costs.target.seconds(1)
    _pass_by(controller, 7, 1.2)
    assert controller.costs.target.seconds(1) == before
    _pass_by(controller, 1, 1.2)
    assert before * 1.1 < controller.costs.target.seconds(1) <= 1.2


def test_plain_rounds_between_those_with_guesses_say_what_guesses_cost() -> None:
    """A pass over nine tokens was calibrated at 1.8 plain passes, and in use takes 3."""
    controller = _controller()
    target = controller.costs.target
    assert target.seconds(9) / target.seconds(1) == pytest.approx(1.8)
    for _ in range(60):
        _pass_by(controller, 5, 0.5)
        controller.choose([controller.ways(0, "lookup", DEEP, _pick(holds=True))])
        times = _times(8, rest=0.2)
        times.pass_seconds = 1.5
        controller.observe(times)
    assert target.seconds(9) / target.seconds(1) == pytest.approx(3, rel=0.1)


def test_one_slow_plain_round_is_not_usual() -> None:
    controller = _controller()
    _pass_by(controller, 4, 1.0)
    _pass_by(controller, 1, 9.0)
    _pass_by(controller, 3, 1.0)
    assert controller.costs.target.seconds(1) == pytest.approx(1.0)


def test_plain_rounds_of_another_batch_are_no_comparison() -> None:
    controller = _controller()
    _pass_by(controller, 7, 1.2)
    controller.observe(StepTimes(lambda: 0.0, 2, 2, 0, 1.1))
    _pass_by(controller, 7, 1.2)
    assert controller.costs.target.seconds(1) == 1.0


def test_what_decides_stays_small_enough_to_read() -> None:
    folder = Path(inspect.getfile(Controller)).parent
    names = ("acceptance.py", "allocation.py", "controller.py")
    trees = [ast.parse((folder / name).read_text("utf-8")) for name in names]
    for node in [node for tree in trees for node in ast.walk(tree)]:
        match node:  # docstrings do not count
            case ast.Module() | ast.ClassDef() | ast.FunctionDef() if ast.get_docstring(node):
                node.body = node.body[1:]
    assert sum(len(ast.unparse(tree).splitlines()) for tree in trees) <= 325


def test_few_value_types_say_how_much_is_guessed() -> None:
    """`StepTimes` is not counted: a step fills it in, so it is not a frozen value."""
    folder, found = Path(inspect.getfile(Controller)).parent, set[str]()
    for path in folder.rglob("*.py"):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                marks = " ".join(map(ast.unparse, (*node.bases, *node.decorator_list)))
                if "NamedTuple" in marks or "frozen=True" in marks:
                    found.add(node.name)
    asked, chosen = {"SpeculativeConfig", "RequestSpeculation"}, {"Way", "Choice"}
    assert found == asked | chosen | {"Method", "Promise"}
