"""Prompts: named ones for the proof, classes for the bench."""

from __future__ import annotations

import json
from collections import Counter
from importlib import resources

import pytest

from forerun.bench.prompts.named_prompts import named_prompts
from forerun.bench.prompts.workloads import FREE_FORM, WORKLOADS, Kind, build_workloads
from forerun.errors import InvalidOption


def test_there_are_200_named_prompts_and_the_first_40_are_short_and_diverse() -> None:
    prompts = named_prompts()
    assert len(prompts) == len({p.name for p in prompts}) == len({p.text for p in prompts}) == 200
    first = named_prompts(40)
    assert first == prompts[:40]
    assert max(len(p.text) for p in first) <= 300
    assert len(Counter(p.category for p in first)) >= 10
    assert {p.source for p in first} == {"Spec-Bench", "HumanEval", "GSM8K"}


@pytest.mark.parametrize("num", [0, 201, -1])
def test_more_named_prompts_than_there_are_is_refused(num: int) -> None:
    with pytest.raises(InvalidOption, match="give 1 to 200"):
        named_prompts(num)


def test_the_data_stay_small_and_say_where_they_come_from() -> None:
    folder = resources.files("forerun.bench.prompts") / "data"
    assert sum(len(file.read_bytes()) for file in folder.iterdir()) < 200_000
    note = (folder / "README.md").read_text()
    for word in ("Spec-Bench", "Apache-2.0", "HumanEval", "GSM8K", "MIT"):
        assert word in note


def test_every_class_has_distinct_prompts_that_depend_on_the_seed_alone() -> None:
    for workload in build_workloads(WORKLOADS, 20, seed=7):
        assert len({prompt.name for prompt in workload.prompts}) == 20
        (again,) = build_workloads([workload.name], 20, seed=7)
        (other,) = build_workloads([workload.name], 20, seed=8)
        assert again == workload
        assert other.digest != workload.digest


def test_more_prompts_begin_with_the_same_ones() -> None:
    (few,), (many,) = build_workloads(["extract"], 3, 0), build_workloads(["extract"], 9, 0)
    assert many.prompts[:3] == few.prompts


def test_copy_heavy_classes_hold_what_is_to_be_copied() -> None:
    copying = [w for w in build_workloads(WORKLOADS, 5, 0) if w.kind is Kind.COPY]
    assert [w.name for w in copying] == ["edit-code", "repeat", "extract"]
    edit, repeat, extract = (w.prompts[0].text for w in copying)
    assert "```python" in edit
    assert len(repeat) > 300
    assert extract.count("- order") == 12


def test_records_have_a_schema_and_no_other_class_has_one() -> None:
    for workload in build_workloads(WORKLOADS, 3, 0):
        schemas = [prompt.json_schema for prompt in workload.prompts]
        if workload.name == "tools":
            calls = json.loads(schemas[0] or "")["anyOf"]
            assert [call["properties"]["name"]["const"] for call in calls] == [
                tool["function"]["name"] for tool in workload.prompts[0].tools
            ]
        elif workload.kind is Kind.STRUCTURED:
            assert all(json.loads(schema or "")["required"] for schema in schemas)
        else:
            assert schemas == [None] * 3
    assert {*FREE_FORM, "json", "tools"} == set(WORKLOADS)
    assert len(FREE_FORM) == len(WORKLOADS) - 2


def test_an_unknown_class_names_the_nearest() -> None:
    with pytest.raises(InvalidOption, match="did you mean 'edit-code'"):
        build_workloads(["edit_code"], 1, 0)
    with pytest.raises(InvalidOption, match="at least 1"):
        build_workloads(["chat"], 0, 0)
