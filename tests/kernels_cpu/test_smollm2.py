"""A real model on the CPU kernels: the text of transformers, and the same bits in any chunks."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from forerun.kernels import Plan
from forerun.models.llama import LlamaModel
from forerun.models.opening import open_checkpoint
from forerun.types import Span, Tree
from tests.kernels_cpu.products.test_formats import INT16, kernels
from tests.models_llama.runs import chain_logits
from tests.models_llama.test_parity import GOLDEN


@pytest.fixture(scope="module")
def smollm2(smollm2_path: Path) -> LlamaModel:
    return LlamaModel.load(open_checkpoint(smollm2_path), kernels())


@pytest.fixture(scope="module")
def closer(smollm2_path: Path) -> LlamaModel:
    """8 bits of each activation lead to other texts than float32, 16 to the same."""
    return LlamaModel.load(open_checkpoint(smollm2_path), kernels(machine=INT16))


@pytest.mark.parametrize("case_idx", [0, 3, 7])
def test_smollm2_gives_the_greedy_text_of_transformers(closer: LlamaModel, case_idx: int) -> None:
    case = json.loads((GOLDEN / "smollm2.json").read_text())[case_idx]
    tokens = (*case["prompt"], *case["answer"][:-1])
    wanted = tuple(range(len(case["prompt"]) - 1, len(tokens)))
    cache = closer.new_cache(num_pages=16, page_size=16)
    table = cache.new_table()
    span = Span(table.reserve(len(tokens)), tokens, Tree.chain(len(tokens)), wanted)
    logits = closer.forward(Plan.build([(span, table)]), cache)
    assert logits.argmax(axis=-1).tolist() == case["answer"]


def test_chunks_and_threads_do_not_show(smollm2: LlamaModel, smollm2_path: Path) -> None:
    tokens = [int(t) for t in np.random.default_rng(1).integers(0, 49152, 41)]
    whole = chain_logits(smollm2, tokens)
    one_thread = LlamaModel.load(open_checkpoint(smollm2_path), kernels(1))
    np.testing.assert_array_equal(chain_logits(one_thread, tokens, 5), whole)
    np.testing.assert_array_equal(chain_logits(smollm2, tokens, 1), whole)
    np.testing.assert_array_equal(chain_logits(smollm2, tokens, 8), whole)
