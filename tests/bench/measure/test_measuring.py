"""From token times to cells: what is counted, and how."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from forerun.bench.measure.bootstrap import geometric_mean, median_interval, quantiles_ms
from forerun.bench.measure.contenders import DEFAULT, PLAIN, engines, fixed_depth, fixed_depths
from forerun.bench.measure.costs import costs_by_contender, measure_passes
from forerun.bench.measure.prediction import Costs, observed_alpha, predict
from forerun.bench.measure.side_by_side import Measurement
from forerun.bench.measure.timed_run import Pass, time_stream
from forerun.bench.prompts.workloads import BenchPrompt, build_workloads
from forerun.bench.records.cells import Cell, by_position, sum_up
from forerun.bench.records.typed_json import as_type
from forerun.engine import LLM, SpeculativeConfig
from forerun.theory.closed_forms import speedup
from forerun.theory.verify_cost import LinearVerifyCost
from forerun.types import SamplingParams
from tests.bench.fakes import COSTS, Scripted, made_run, side_by_side

GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)


class Ticks:
    """A clock that advances by a second at every reading."""

    def __init__(self) -> None:
        self._ticks = itertools.count()

    def __call__(self) -> float:
        return float(next(self._ticks))


def test_a_stream_is_timed_at_every_arrival(llm: LLM) -> None:
    run = time_stream(llm, [1, 2, 3], GREEDY, Ticks())
    assert run.arrivals == tuple((float(n), 1) for n in range(1, 13))
    assert (run.ttft, run.seconds, run.num_decoded, run.seconds_per_token) == (1, 12, 11, 1)
    assert list(run.waits) == [1.0] * 11
    assert run.tokens == llm.generate([1, 2, 3], GREEDY)[0].outputs[0].token_ids


def test_speculation_is_seen_pass_by_pass(llm: LLM) -> None:
    plain, lookup = engines(llm, {"lookup": fixed_depth("prompt_lookup", 3, {})}, GREEDY, Ticks())
    prompt = [4, 5, 6, 4, 5]
    one, other = plain.answer(prompt, 40), lookup.answer(prompt, 40)
    assert one.digest == other.digest
    assert len(other.passes) < len(one.passes) == 39
    assert sum(p.num_accepted + 1 for p in other.passes) == 39
    assert other.num_accepted == 39 - len(other.passes)


def test_tokens_that_come_together_wait_nothing() -> None:
    run = made_run((1, 2, 3, 4, 5), per_pass=2)
    assert list(run.waits) == pytest.approx([0.01, 0, 0.01, 0])
    assert run.seconds_per_token == pytest.approx(0.005)
    assert made_run((1,)).seconds_per_token is None


def test_the_interval_holds_the_median_and_shrinks_with_agreement() -> None:
    values = list(np.random.default_rng(0).normal(2.0, 0.2, 40))
    found = median_interval(values, seed=1)
    assert found is not None
    assert found.low < found.median < found.high
    assert found == median_interval(values, seed=1)
    same = median_interval([1.5] * 20, seed=1)
    assert same is not None
    assert (same.low, same.high) == (1.5, 1.5)
    assert median_interval([], 0) is None


def test_the_interval_covers_the_true_median_about_as_often_as_it_says() -> None:
    # 200 samples of 20; coverage below 0.88 has a chance under 1e-4 if it is truly 0.95.
    rng = np.random.default_rng(3)
    hits = 0
    for _ in range(200):
        found = median_interval(list(rng.exponential(1.0, 20)), seed=0)
        assert found is not None
        hits += found.low <= math.log(2) <= found.high
    assert hits / 200 >= 0.88


def test_means_and_quantiles() -> None:
    assert geometric_mean([1, 4]) == pytest.approx(2)
    assert geometric_mean([]) is None
    assert quantiles_ms([0.001 * n for n in range(101)]) == pytest.approx(
        {"p50": 50, "p95": 95, "p99": 99}
    )
    assert quantiles_ms([]) is None


def test_acceptance_by_position_counts_only_rounds_that_guessed_so_far() -> None:
    passes = [Pass(3, 3, 3, 1), Pass(3, 3, 1, 1), Pass(1, 1, 0, 1), Pass(0, 0, 0, 1)]
    assert by_position(passes) == pytest.approx([2 / 3, 1 / 2, 1 / 2])
    assert by_position([]) == []


def test_alpha_is_accepted_over_tested() -> None:
    passes = [Pass(3, 3, 3, 1), Pass(3, 3, 1, 1), Pass(1, 1, 0, 1)]
    assert observed_alpha(passes) == pytest.approx(4 / 6)
    assert observed_alpha([Pass(0, 0, 0, 1)]) is None


def test_with_one_depth_the_prediction_is_the_papers_formula() -> None:
    passes = [Pass(4, 4, 4, 0.012), Pass(4, 4, 0, 0.012), Pass(4, 4, 2, 0.012)]
    costs = Costs(0.1, LinearVerifyCost(0.05), plain_seconds=0.01)
    found = predict(passes, [Pass(0, 0, 0, 0.01)], costs, measured=1.6)
    assert found is not None
    assert found.alpha == pytest.approx(6 / 8)
    wanted = speedup(found.alpha, 4, 0.1, LinearVerifyCost(0.05))
    assert found.predicted == pytest.approx(wanted)
    assert found.error == pytest.approx(wanted / 1.6 - 1)
    assert found.verify == {4: pytest.approx(1.2)}


@pytest.mark.parametrize(
    ("seconds", "plain_seconds", "accepted", "reason"),
    [
        (0.010, 0.01, (4, 4, 0, 0), "independently"),
        (0.030, 0.01, (1, 1, 1, 1), "a round took 30.0 ms"),
        (0.011, 0.04, (1, 1, 1, 1), "a plain pass took 40.0 ms, and 10.0 when"),
    ],
)
def test_a_prediction_that_is_off_says_why(
    seconds: float, plain_seconds: float, accepted: tuple[int, ...], reason: str
) -> None:
    passes = [Pass(4, 4, num, seconds) for num in accepted]
    found = predict(passes, [Pass(0, 0, 0, plain_seconds)], COSTS, measured=9.0)
    assert found is not None
    assert reason in str(found.reason)
    good = predict(passes, [Pass(0, 0, 0, plain_seconds)], COSTS, found.predicted * 1.05)
    assert good is not None
    assert good.reason is None


def test_nothing_guessed_is_not_predicted() -> None:
    assert predict([Pass(0, 0, 0, 1)], [], COSTS, 1.0) is None


def test_cells_pair_every_answer_with_plain() -> None:
    workloads = build_workloads(["chat"], 2, 0)
    runs = {PLAIN: made_run(), DEFAULT: made_run(per_pass=2)}
    measured = [
        Measurement("chat", n, "x", who, run) for n in range(2) for who, run in runs.items()
    ]
    plain, ours = sum_up(measured, workloads, {DEFAULT: COSTS}, seed=0)
    assert plain.ratio is not None
    assert ours.ratio is not None
    assert (plain.ratio.median, ours.ratio.median) == pytest.approx((1, 2))
    assert ours.ratio_whole is not None
    assert ours.ratio_whole.median == pytest.approx(0.14 / 0.12)
    assert ours.tokens_per_second == pytest.approx(200)
    assert ours.tokens_per_pass == pytest.approx(2)
    assert (ours.acceptance_rate, ours.acceptance_by_position) == (1, [1])
    assert ours.same_tokens == 1
    assert ours.prediction is not None
    assert ours.prediction.error == pytest.approx(0)
    assert as_type(Cell, json.loads(json.dumps(ours.as_dict()))) == ours


def test_a_different_answer_is_counted() -> None:
    workloads = build_workloads(["chat"], 2, 0)
    measured = [
        Measurement("chat", 0, "x", PLAIN, made_run((1, 2, 3))),
        Measurement("chat", 0, "x", DEFAULT, made_run((1, 2, 4))),
    ]
    assert sum_up(measured, workloads, {}, seed=0)[1].same_tokens == 0


def test_contenders_alternate_and_peers_write_as_much_as_plain(llm: LLM) -> None:
    plain, ours, peer = Scripted(PLAIN), Scripted(DEFAULT), Scripted("llamacpp/plain")
    side = side_by_side(llm, plain, ours, peers=[peer], num_pairs=4)
    found = list(side.measure())
    assert len(found) == side.num_runs == 4 * 2 * 3
    for start in range(0, len(found), 3):
        group = found[start : start + 3]
        assert {m.contender for m in group} == {PLAIN, DEFAULT, "llamacpp/plain"}
        assert group[-1].contender == "llamacpp/plain"
        assert len({(m.workload, m.pair_idx) for m in group}) == 1
    assert {found[start].contender for start in range(0, len(found), 3)} == {PLAIN, DEFAULT}
    assert set(peer.asked) == {5}  # as many as plain wrote, not the 8 allowed


def test_an_answer_that_fits_a_schema(tiny_json_path: Path) -> None:
    llm = LLM(tiny_json_path, speculative_config=None, num_threads=1)
    (plain,) = engines(llm, {}, SamplingParams(temperature=0), Ticks())
    asked = BenchPrompt("a", "a", json_schema='{"enum": ["a cat"]}')
    run = plain.answer([1, 2, 3], 40, asked)
    assert llm.tokenizer.decode(run.tokens) == '"a cat"'
    tool = {"type": "function", "function": {"name": "nap"}}
    run = plain.answer([1, 2, 3], 80, replace(asked, tools=(tool,)))
    call = '<tool_call>\n{"name": "nap", "arguments": {}}\n</tool_call>'
    assert llm.tokenizer.decode(run.tokens) == call


def test_costs_are_relative_to_a_plain_pass(llm: LLM) -> None:
    assert set(measure_passes(llm, [1, 2, 3], [1, 3], Ticks())) == {0, 1, 3}
    configs = fixed_depths(["bigram", "own_layers"], [2], {"own_layers": {"num_layers": 1}})
    costs = costs_by_contender(llm, configs, [1, 2, 3], Ticks(), None)
    assert list(costs) == ["bigram:2", "own_layers:2"]
    assert costs["own_layers:2"].verify.at(2) == pytest.approx(1)  # every pass takes one tick
    assert costs["own_layers:2"].draft_step == pytest.approx(0.5)


def test_a_choice_among_drafters_has_no_one_cost(llm: LLM) -> None:
    choice = SpeculativeConfig.from_dict({"method": "choice", "methods": ["bigram", "suffix"]})
    assert costs_by_contender(llm, {DEFAULT: choice}, [1, 2, 3], Ticks(), None) == {}
