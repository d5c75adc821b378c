"""The same numbers as the transformers library, from golden files that `make oracle` writes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from forerun.kernels import Plan, ReferenceKernels
from forerun.models.llama import LlamaModel
from forerun.models.opening import open_checkpoint
from forerun.types import Span, Tree
from tests.models_llama.runs import chain_logits

GOLDEN = Path(__file__).parent.parent / "golden"
FAMILIES = (
    "llama2",
    "llama3.1",
    "llama3.2",
    "linear-rope",
    "smollm2",
    "qwen2",
    "qwen3",
    "mistral",
)


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_those_of_transformers(family: str) -> None:
    folder = GOLDEN / "families" / family
    golden = np.load(folder / "parity.npz")
    model = LlamaModel.load(open_checkpoint(folder), ReferenceKernels())
    got = chain_logits(model, [int(token) for token in golden["tokens"]])
    np.testing.assert_allclose(got, golden["logits"], rtol=0, atol=1e-4)


def test_every_golden_family_is_checked() -> None:
    assert sorted(FAMILIES) == sorted(path.name for path in (GOLDEN / "families").iterdir())


@pytest.fixture(scope="module")
def smollm2(smollm2_path: Path) -> LlamaModel:
    return LlamaModel.load(open_checkpoint(smollm2_path), ReferenceKernels())


@pytest.mark.slow  # the cpu kernels give the same golden texts in the quick tests
@pytest.mark.parametrize("case_idx", [0, 3])
def test_smollm2_gives_the_greedy_text_of_transformers(smollm2: LlamaModel, case_idx: int) -> None:
    """One pass over prompt and answer; `make oracle` runs all ten prompts.

    As long as every choice so far agreed, a token's context is what decoding would have had.
    """
    case = json.loads((GOLDEN / "smollm2.json").read_text())[case_idx]
    tokens = (*case["prompt"], *case["answer"][:-1])
    wanted = tuple(range(len(case["prompt"]) - 1, len(tokens)))
    cache = smollm2.new_cache(num_pages=16, page_size=16)
    table = cache.new_table()
    span = Span(table.reserve(len(tokens)), tokens, Tree.chain(len(tokens)), wanted)
    logits = smollm2.forward(Plan.build([(span, table)]), cache)
    assert logits.argmax(axis=-1).tolist() == case["answer"]
