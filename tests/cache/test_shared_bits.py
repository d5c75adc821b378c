"""Shared rows are the rows that the request would have computed, bit for bit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from forerun.cache import BlockTable, KVCache
from forerun.kernels import Plan, ReferenceKernels
from forerun.models.llama import LlamaModel
from forerun.types import FloatArray, Span
from tests.models_llama.tiny import TinyCheckpoint, tiny_config

PROMPT = tuple(idx * 7 % 11 for idx in range(40))


@pytest.fixture(scope="module")
def model() -> LlamaModel:
    return LlamaModel.load(TinyCheckpoint(tiny_config(), 0), ReferenceKernels())


def last_logits(
    model: LlamaModel, cache: KVCache, tokens: Sequence[int]
) -> tuple[FloatArray, BlockTable, int]:
    """The logits [V] after the last token, the table, and how many tokens were run."""
    table = cache.new_table()
    start = cache.prefixes.attach(table, tokens)
    table.reserve(len(tokens) - start)
    span = Span.prompt_chunk(start, tokens[start:], is_last=True)
    (logits,) = model.forward(Plan.build([(span, table)]), cache)
    cache.prefixes.publish(table, tokens)
    return logits, table, len(span)


@pytest.mark.parametrize(("num_pages", "page_size"), [(20, 4), (12, 16), (2, 64), (1, 64)])
@pytest.mark.parametrize("cut", [3, 17, 32, 39])
def test_logits_behind_a_shared_prefix(
    model: LlamaModel, num_pages: int, page_size: int, cut: int
) -> None:
    tokens = (*PROMPT[:cut], 1, 2)
    expected, _, num_alone = last_logits(model, model.new_cache(num_pages, page_size), tokens)
    cache = model.new_cache(num_pages, page_size)
    _, table, _ = last_logits(model, cache, PROMPT)
    cache.prefixes.retire(table, PROMPT)
    logits, _, num_run = last_logits(model, cache, tokens)
    np.testing.assert_array_equal(logits, expected)
    assert num_run <= 2 < num_alone


def test_a_fork_and_its_origin_go_their_own_ways(model: LlamaModel) -> None:
    cache = model.new_cache(20, 4)
    _, one, _ = last_logits(model, cache, PROMPT[:10])
    other = one.fork()
    for table, token in ((one, 1), (other, 2)):
        span = Span.prompt_chunk(table.reserve(1), (token,), is_last=True)
        (logits,) = model.forward(Plan.build([(span, table)]), cache)
        alone = last_logits(model, model.new_cache(20, 4), (*PROMPT[:10], token))[0]
        np.testing.assert_array_equal(logits, alone)
