"""A plain token's time, part by part."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from forerun.bench.measure.profile import measure_profile
from forerun.engine import LLM
from forerun.errors import InvalidOption
from forerun.types import SamplingParams


@pytest.fixture(scope="module")
def llm(tiny_path: Path) -> LLM:
    return LLM(tiny_path, speculative_config=None, kernels="cpu", num_threads=1)


def test_the_parts_add_up_to_the_token(llm: LLM) -> None:
    steps = itertools.accumulate(itertools.count(1))  # every reading of the clock takes longer
    found = measure_profile(llm, steps.__next__, num_context=20, num_rounds=3)
    parts = found["parts"]
    assert {"product", "attention", "norm", "rows", "draw", "Python"} <= set(parts)
    assert min(part["seconds"] for name, part in parts.items() if name != "Python") >= 0
    assert sum(part["seconds"] for part in parts.values()) == pytest.approx(found["token_s"])
    config = llm.model.config
    values = 4 * 2 * 20 * config.num_layers * config.num_kv_heads * config.head_dim
    assert parts["attention"]["bytes"] >= values  # heads are padded
    assert parts["product"]["bytes"] > 4 * config.vocab_size * config.hidden_size


def test_parts_are_what_works_take_and_python_is_taken_within_rounds(llm: LLM) -> None:
    """Attention's time is that of all steps minus that of the steps without it: run alone, it would
    meet the keys of other layers."""
    kinds = {"product": 1.0, "attention": 5.5, "norm": 1.0, "rows": 0.5, "draw": 0.5, "whole": 8.0}
    in_a_row = {name: 8 * seconds for name, seconds in kinds.items()}
    works = {"token": 8 * 10.0, "pass": 10.0, **in_a_row, "read": 1.0}
    of_round = [part for seconds in works.values() for part in (0.0, seconds)]
    slow = [5 * seconds for seconds in of_round]
    now = itertools.accumulate(itertools.cycle([*of_round, *of_round, *slow, *of_round]))
    found = measure_profile(llm, now.__next__, num_context=20, num_rounds=4)
    parts = {name: part["seconds"] for name, part in found["parts"].items()}
    assert parts["attention"] == pytest.approx(8.0 - 5.5)
    assert parts["between steps"] == pytest.approx(8.0 - 2.5 - 3)
    assert parts["Python"] == pytest.approx(10.0 - 8.0)
    assert found["token_s"] == pytest.approx(10)
    assert found["python_quartiles"] == pytest.approx([0.2, 0.2])  # in the slow round as well


def test_python_may_come_out_below_nothing(llm: LLM) -> None:
    """If a token takes no longer than its steps, noise may make the difference negative."""
    others = dict.fromkeys(("product", "attention", "norm", "rows", "draw"), 8.0)
    works = {"token": 8 * 9.0, "pass": 1.0, **others, "whole": 8 * 10.0, "read": 1.0}
    of_round = [part for seconds in works.values() for part in (0.0, seconds)]
    now = itertools.accumulate(itertools.cycle(of_round))
    found = measure_profile(llm, now.__next__, num_context=20, num_rounds=2)
    assert found["parts"]["Python"]["seconds"] == pytest.approx(9 - 10)


def test_running_kinds_alone_spoils_no_answer(llm: LLM) -> None:
    params = SamplingParams(temperature=1.0, seed=3, max_tokens=12, ignore_eos=True)
    before = llm.generate([1, 2, 3], params)[0].outputs[0].token_ids
    measure_profile(llm, itertools.count().__next__, num_context=8, num_rounds=2)
    assert llm.generate([1, 2, 3], params)[0].outputs[0].token_ids == before


def test_the_reference_kernels_have_no_such_parts(tiny_path: Path) -> None:
    llm = LLM(tiny_path, speculative_config=None, kernels="reference")
    with pytest.raises(InvalidOption, match="drop --kernels reference"):
        measure_profile(llm, float)
