"""The gate: a canary is promoted, held back, or not comparable."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from forerun.bench.measure.contenders import DEFAULT, PLAIN
from forerun.bench.records.gate import Side, check_rollout
from forerun.bench.records.record import InvalidRecord, Record
from forerun.engine import LLM
from forerun.errors import InvalidOption
from tests.bench.fakes import Scripted, made_record


def gated(baseline: Record, canary: Record, **options: Any) -> dict[tuple[str, str], bool]:
    sides = Side("old.json", baseline, PLAIN), Side("new.json", canary, DEFAULT)
    checks = check_rollout(*sides, **options)
    return {(check.workload, check.what.split()[0]): check.passed for check in checks}


def test_a_faster_canary_with_the_same_tokens_is_promoted(llm: LLM) -> None:
    record = made_record(llm)
    found = gated(record, record)
    assert len(found) == 6
    assert all(found.values())


def test_a_slower_canary_is_held_back(llm: LLM) -> None:
    record = made_record(llm, default=Scripted(DEFAULT, per_pass=2, seconds=0.0206))
    found = gated(record, record)
    assert found["chat", "same"]
    assert not found["chat", "p95"]
    assert found["chat", "tokens/s"]  # 0.97 ×
    slower = made_record(llm, default=Scripted(DEFAULT, per_pass=2, seconds=0.022))
    assert not gated(slower, slower)["chat", "tokens/s"]


def test_equal_latency_is_no_improvement(llm: LLM) -> None:
    record = made_record(llm, default=Scripted(DEFAULT))
    assert not gated(record, record)["story", "p95"]


def test_other_tokens_are_held_back(llm: LLM) -> None:
    record = made_record(llm)
    runs = [run.copy() for run in record.runs]
    last = next(run for run in reversed(runs) if run["contender"] == DEFAULT)
    last["digest"] = "other"
    found = gated(record, replace(record, runs=runs))
    assert not found[last["workload"], "same"]
    assert sum(found.values()) == 5


def test_single_waits_can_be_asked_for(llm: LLM) -> None:
    record = made_record(llm, default=Scripted(DEFAULT, per_pass=2, seconds=0.012))
    assert gated(record, record)["chat", "p95"]
    assert not gated(record, record, latency="wait")["chat", "p95"]
    with pytest.raises(InvalidOption, match="unknown latency"):
        gated(record, record, latency="mean")


@pytest.mark.parametrize(
    ("part", "key", "value", "sentence"),
    [
        ("model", "sha256", "cd", "new.json was measured with another model than old.json"),
        ("machine", "cpu", "Slide rule", "another machine than old.json: cpu is 'Slide rule'"),
        ("machine", "features", ["neon"], "features is ['neon'], not 'not recorded'"),
        ("machine", "memory_bytes", 8, "memory_bytes is 8, not 'not recorded'"),
        ("settings", "temperature", 1.0, "another setting than old.json: temperature is 1.0"),
        ("settings", "threads", 1, "threads is 1, not 'not recorded'"),
        ("settings", "kernels", "ReferenceKernels", "kernels is 'ReferenceKernels'"),
        ("settings", "quantization", None, "quantization is None, not 'not recorded'"),
        ("settings", "activations", "int8", "activations is 'int8', not 'int16'"),
        ("settings", "instruction_set", "avx2", "instruction_set is 'avx2', not None"),
        ("settings", "kv_cache_dtype", "float16", "kv_cache_dtype is 'float16', not 'float32'"),
    ],
)
def test_what_does_not_compare_is_refused_by_name(
    llm: LLM, part: str, key: str, value: Any, sentence: str
) -> None:
    record = made_record(llm)
    changed: dict[str, Any] = {part: {**getattr(record, part), key: value}}
    other = replace(record, **changed)
    with pytest.raises(InvalidRecord, match=re.escape(sentence)):
        gated(record, other)


@pytest.mark.parametrize(
    ("kernels", "cache"),
    [("CpuKernels", "float32"), ("CudaKernels", None), ("ReferenceKernels", None)],
)
def test_a_record_from_before_there_were_types_of_caches_has_the_only_one(
    llm: LLM, kernels: str, cache: str | None
) -> None:
    record = made_record(llm)
    settings = {**record.settings, "kernels": kernels}
    old = replace(record, settings={k: v for k, v in settings.items() if k != "kv_cache_dtype"})
    gated(old, replace(record, settings={**settings, "kv_cache_dtype": cache}))


def test_other_prompts_and_contenders_are_refused(llm: LLM) -> None:
    record = made_record(llm)
    with pytest.raises(InvalidRecord, match="different classes"):
        gated(record, made_record(llm, names=["chat"]))
    with pytest.raises(InvalidRecord, match="class chat has other prompts"):
        gated(record, made_record(llm, num_pairs=2))
    with pytest.raises(InvalidOption, match="did you mean 'default'"):
        Side("new.json", record, "defualt")


def test_an_interrupted_record_is_refused_on_either_side(llm: LLM) -> None:
    record = made_record(llm)
    stopped = replace(record, is_complete=False)
    with pytest.raises(InvalidRecord, match=re.escape("new.json was interrupted")):
        gated(record, stopped)
    with pytest.raises(InvalidRecord, match=re.escape("old.json was interrupted")):
        gated(stopped, record)


def test_records_that_answer_other_prompts_are_refused(llm: LLM) -> None:
    record = made_record(llm)
    fewer = replace(record, runs=[run for run in record.runs if run["pair"] != 1])
    sentence = "only old.json has an answer to prompt 1 of class chat"
    with pytest.raises(InvalidRecord, match=re.escape(sentence)):
        gated(record, fewer)
    with pytest.raises(InvalidRecord, match=re.escape("only new.json has an answer to prompt 1")):
        gated(fewer, record)
    nothing = replace(record, runs=[], cells=[], workloads={})
    with pytest.raises(InvalidRecord, match=re.escape("old.json has no answer of plain")):
        gated(nothing, nothing)
