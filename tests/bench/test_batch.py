"""What `forerun bench batch` measures of requests in flight."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from forerun.bench.batch import (
    OURS,
    Prompts,
    answer_together,
    load_record,
    measure_load,
    measure_offline,
    measure_together,
    mixed_prompts,
    offline_record,
    together_record,
)
from forerun.bench.measure.contenders import DEFAULT, PLAIN
from forerun.engine import LLM
from forerun.types import SamplingParams
from tests.tiny_model import write_tiny_model

PARAMS = SamplingParams(temperature=0, max_tokens=6)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("models") / "long", max_len=3000)


@pytest.fixture(scope="module")
def llm(path: Path) -> LLM:
    return LLM(path, max_num_seqs=4, num_threads=1)


def prompts_of(llm: LLM, num: int) -> list[list[int]]:
    return [prompt[:40] for prompt in mixed_prompts(["story", "chat"], num, 0, llm.tokenizer)]


def test_classes_take_turns(llm: LLM) -> None:
    three = mixed_prompts(["story", "chat"], 3, 0, llm.tokenizer)
    assert len(three) == 3
    assert three[0] == mixed_prompts(["story"], 1, 0, llm.tokenizer)[0]
    assert three[1] == mixed_prompts(["chat"], 1, 0, llm.tokenizer)[0]


def test_a_repeated_run_is_no_cheaper(llm: LLM) -> None:
    prompts = prompts_of(llm, 2)
    ticks = itertools.count()
    before = llm.metrics()["cached_prompt_tokens"]
    first = answer_together(llm, prompts, PARAMS, ticks.__next__)
    second = answer_together(llm, prompts, PARAMS, ticks.__next__)
    assert llm.metrics()["cached_prompt_tokens"] == before
    assert first == second
    assert first.seconds == 1
    assert first.num_tokens == sum(map(len, first.tokens))


def test_together_and_alone_say_the_same(llm: LLM) -> None:
    rounds = [prompts_of(llm, 3), prompts_of(llm, 6)[3:]]
    ticks = itertools.count()
    plain = llm.with_speculation(None)
    found = list(measure_together(plain, rounds, PARAMS, ticks.__next__, seed=0))
    assert [(one.together_s, one.alone_s) for one in found] == [(1, (1, 1, 1))] * 2
    assert all(one.same_tokens for one in found)
    assert together_record(found, 0)["ratio"]["median"] == pytest.approx(1 / 3)


def test_load_runs_both_ways_on_the_same_prompts(llm: LLM) -> None:
    lists = [prompts_of(llm, 1), prompts_of(llm, 4)]
    ticks = itertools.count()
    llms = {PLAIN: llm.with_speculation(None), DEFAULT: llm}
    pairs = list(measure_load(llms, lists, PARAMS, ticks.__next__, Random(0)))
    assert [pair.num_in_flight for pair in pairs] == [1, 4]
    assert all(pair.same_tokens and pair.ratio == 1 for pair in pairs)
    record = load_record(pairs, 0)
    assert set(record["ratio"]) == {"1", "4"}


class Slow:
    """A server that takes twice our time, on a clock that advances by one at every reading."""

    name = "llamacpp/plain"

    def __init__(self) -> None:
        self.asked: list[Sequence[int]] = []

    def answer_all(
        self, prompts: Prompts, num_tokens: Sequence[int]
    ) -> tuple[float, list[list[int]]]:
        self.asked.append(num_tokens)
        return 2.0, [[0] * num for num in num_tokens[: len(prompts)]]


def test_offline_asks_a_server_for_as_many_tokens(llm: LLM) -> None:
    server, ticks = Slow(), itertools.count()
    prompts = prompts_of(llm, 5)
    found = list(measure_offline(llm, [server], prompts, 3, PARAMS, ticks.__next__, seed=0))
    ours = answer_together(llm, prompts, PARAMS, float)
    assert [list(counts) for counts in server.asked[1:]] == [[len(t) for t in ours.tokens]] * 3
    assert [one.ratio("llamacpp/plain") for one in found] == [2.0] * 3
    assert {one.num_tokens[OURS] for one in found} == {ours.num_tokens}
    assert offline_record(found, 0)["ratio"]["llamacpp/plain"]["median"] == 2
