"""Two kernel sets on one text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from forerun.bench.measure.parity import compare, margins_of, parity_record
from forerun.bench.measure.teacher_forcing import text_logits
from forerun.bench.prompts.named_prompts import NamedPrompt, named_prompts
from forerun.engine import LLM
from forerun.kernels import ReferenceKernels
from forerun.models.llama import LlamaModel
from forerun.models.opening import open_checkpoint
from forerun.types import SamplingParams


@pytest.fixture(scope="module")
def prompts() -> list[NamedPrompt]:
    first = named_prompts(1)[0]
    texts = {"one": "the cat sat on the mat", "two": "la la la"}
    return [replace(first, name=name, text=text) for name, text in texts.items()]


def reference(path: Path) -> LlamaModel:
    return LlamaModel.load(open_checkpoint(path, None), ReferenceKernels(np.float64))


def test_both_sets_choose_the_same_tokens(
    llm: LLM, tiny_path: Path, prompts: list[NamedPrompt]
) -> None:
    found = list(compare(llm, reference(tiny_path), prompts, num_tokens=12))
    assert [(one.prompt, one.num_tokens) for one in found] == [("one", 12), ("two", 12)]
    assert [one.parting for one in found] == [None, None]
    assert parity_record(found)["num_same"] == 2


def test_another_model_parts_and_the_place_is_told(
    llm: LLM, tiny_draft_path: Path, prompts: list[NamedPrompt]
) -> None:
    found = list(compare(llm, reference(tiny_draft_path), prompts, num_tokens=12))
    parting = found[0].parting
    assert parting is not None
    assert parting.ours != parting.theirs
    assert parting.our_margin > 0
    assert parting.their_margin > 0
    assert 1 <= found[0].num_different <= 12
    record = parity_record(found)
    assert record["num_prompts"] == 2
    assert record["num_same"] == sum(one.parting is None for one in found)


def test_logits_of_a_known_text_are_those_of_writing_it(llm: LLM) -> None:
    prompt = llm.tokenizer.encode("once upon a time ") * 20  # more than one pass
    params = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True, logprobs=1)
    text = llm.generate(prompt[-230:], params)[0].outputs[0].token_ids
    logits = text_logits(llm.model, prompt[-230:], text)
    assert tuple(logits.argmax(axis=1)) == text


def test_margins() -> None:
    rows = np.array([[1.0, 4.0, 2.5], [3.0, 3.0, 0.0]])
    assert margins_of(rows).tolist() == [1.5, 0.0]
