"""What a caller may ask for one request: honoured in any batch, or refused in one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from forerun.engine import LLM, RequestSpeculation
from forerun.engine.request.options import RequestOptions
from forerun.errors import InvalidOption
from forerun.speculation.choice import NO_ROOM
from forerun.speculation.step_times import StepTimes
from forerun.types import SamplingParams

PARAMS = SamplingParams(temperature=0.8, seed=3, max_tokens=24, ignore_eos=True)
SEVERAL = {"method": "hybrid", "methods": ["suffix", "bigram", "own_layers"], "num_layers": 1}


@pytest.fixture(scope="module")
def several(plain: LLM) -> LLM:
    """An engine with three drafters, among which the controller chooses."""
    return plain.with_speculation({**SEVERAL, "num_speculative_tokens": 4, "num_branches": 2})


@pytest.fixture
def fixed(plain: LLM) -> LLM:
    return plain.with_speculation(
        {"method": "own_layers", "num_layers": 3, "num_speculative_tokens": 4, "num_branches": 2}
        | {"adaptive": False}
    )


def test_a_ceiling_holds(fixed: LLM) -> None:
    for ceiling in (1, 2, 4, 9):
        events = list(fixed.stream("abc", PARAMS, speculation={"num_speculative_tokens": ceiling}))
        depths = {event.round.proposal.depth for event in events[1:-1]}
        assert max(depths) == min(ceiling, 4)


def test_branches_have_a_ceiling_too(fixed: LLM) -> None:
    events = list(fixed.stream("abc", PARAMS, speculation=RequestSpeculation(num_branches=1)))
    assert all(event.round.proposal.tree.is_chain for event in events)


def test_a_request_may_guess_nothing(fixed: LLM, several: LLM) -> None:
    for llm in (fixed, several):
        output = llm.generate("abcabc", PARAMS, speculation={"num_speculative_tokens": 0})[0]
        assert output.outputs[0].stats["draft_tokens"] == 0


def test_a_request_may_name_its_drafter(several: LLM) -> None:
    for name in ("suffix", "bigram", "own_layers"):
        events = list(several.stream("abcabcab", PARAMS, speculation={"drafter": name}))
        assert {event.round.drafter for event in events} <= {None, name}


def test_without_a_controller_each_request_has_the_drafter_it_names(plain: LLM) -> None:
    names = ["bigram", "suffix", "own_layers"]
    llm = plain.with_speculation(
        {"method": "choice", "methods": names, "num_layers": 3, "adaptive": False}
    )
    for asked, expected in ((None, "bigram"), *((name, name) for name in names)):
        events = list(llm.stream("abcabcab", PARAMS, speculation={"drafter": asked}))
        guessing = [event.round for event in events if len(event.round.proposal)]
        assert {done.drafter for done in guessing} == {expected}


def test_everything_in_one_pass(several: LLM, plain: LLM) -> None:
    """Different drafters, depths, branches and acceptances share passes; coupled requests keep
    their bits."""
    asked: list[Any] = [
        None,
        {"drafter": "bigram", "num_branches": 1},
        {"drafter": "own_layers", "num_speculative_tokens": 2},
        {"num_speculative_tokens": 0},
        {"drafter": "suffix"},
        {"drafter": "own_layers"},
    ]
    params = [PARAMS.with_(seed=seed) for seed in range(len(asked))]
    params[5] = params[5].with_(acceptance="rejection")
    prompts = ["abcab" * (1 + idx) for idx in range(len(asked))]
    results = several.generate(prompts, params, speculation=asked, priority=[0, 1, 2, -1, 0, 0])
    for prompt, each, result in list(zip(prompts, params, results, strict=True))[:5]:
        alone = plain.generate(prompt, each)[0].outputs[0]
        assert result.outputs[0].token_ids == alone.token_ids


def test_callers_do_not_share_prefixes(plain: LLM) -> None:
    llm = plain.with_speculation(None)
    prompt = [idx % 30 for idx in range(100)]
    salts = ["a", "b", "a", None]
    cached = [llm.generate(prompt, PARAMS, cache_salt=s)[0].num_cached_tokens for s in salts]
    assert cached == [0, 0, 99, 0]


def test_a_better_priority_runs_first(tiny_path: Path) -> None:
    llm = LLM(tiny_path, speculative_config=None, max_num_seqs=1, num_threads=1)
    turns = (0, 2, -2)
    requests = [llm.input_processor.requests("abc", PARAMS, _options(turn))[0] for turn in turns]
    llm.engine.add(requests)
    ended: list[int] = []
    while not llm.engine.is_idle:
        ended += [request.priority for request in llm.engine.step().ended]
    assert ended == [-2, 0, 2]


def _options(priority: int) -> RequestOptions:
    return RequestOptions(priority)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"priority": 101}, "-100 … 100"),
        ({"priority": -101}, "-100 … 100"),
        ({"priority": "high"}, "priority='high'"),
        ({"priority": True}, "priority=True"),
        ({"priority": [1, 2]}, "2 values of priority for 1 prompts"),
        ({"cache_salt": 3}, "cache_salt=3"),
        ({"speculation": 5}, "speculation=5"),
        ({"speculation": {"drafters": "suffix"}}, "did you mean 'drafter'"),
        ({"speculation": {"drafter": "sufix"}}, "did you mean 'suffix'"),
        ({"speculation": {"drafter": 3}}, "drafter=3"),
        ({"speculation": {"num_speculative_tokens": -1}}, "num_speculative_tokens=-1"),
        ({"speculation": {"num_speculative_tokens": 1.5}}, "num_speculative_tokens=1.5"),
        ({"speculation": {"num_branches": 0}}, "num_branches=0"),
    ],
)
def test_bad_options_are_refused(several: LLM, options: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidOption, match=why):
        several.generate("abc", PARAMS, **options)
    with pytest.raises(InvalidOption, match=why):
        several.stream("abc", PARAMS, **options)
    assert several.engine.is_idle


def test_a_drafter_where_nothing_speculates(plain: LLM) -> None:
    with pytest.raises(InvalidOption, match="does not speculate"):
        plain.generate("abc", speculation={"drafter": "suffix"})
    assert plain.generate("abc", PARAMS, speculation={"num_speculative_tokens": 3})


def test_a_merged_tree_asks_for_what_it_costs(plain: LLM) -> None:
    """Two drafters, 3 deep each, in one tree: six rows must be granted, not three."""
    llm = plain.with_speculation(
        {"method": "merge", "methods": ["bigram", "random"], "num_speculative_tokens": 3}
        | {"adaptive": False}
    )
    speculation = llm.engine.core.speculation
    assert speculation is not None
    (request,) = llm.input_processor.requests("abc", PARAMS, _options(0))
    choice = speculation.choose([request], 0, StepTimes())[request.id]
    assert choice.num_guesses == 6
    shrunk = choice.within(5)
    assert (shrunk.depth, shrunk.num_branches, shrunk.num_guesses) == (2, 1, 4)
    assert choice.within(1) == NO_ROOM
