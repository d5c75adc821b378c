"""In a whole pass of every kernel set, a token's logits do not depend on the batch."""

from __future__ import annotations

from functools import cache as memoize
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forerun.kernels import Plan, PlanRow
from forerun.models.llama import LlamaModel
from forerun.types import ROOT, Tree
from tests.contracts.kernel_sets import FOR_PACKED, INT16, KERNEL_SETS
from tests.kernels_cpu.packed import MIXED_CONFIG, MIXED_FORMATS, MixedCheckpoint
from tests.models_llama.naive import naive_logits
from tests.models_llama.runs import Logits, all_wanted, chain_logits, extend
from tests.models_llama.tiny import FAMILIES, TinyCheckpoint

PROMPT = tuple(int(t) for t in np.random.default_rng(5).integers(0, 96, 21))
POISON = 96  # a token whose embedding is NaN, in the poisoned model
MIXED = "mixed"  # Q4_K, Q6_K, Q8_0 and F16 in one model, stacked in one matrix
LIGHT = "light"  # the same without K formats, which take long to compile
LIGHT_FORMATS = {n: {"Q4_K": "Q4_1", "Q6_K": "Q8_0"}.get(f, f) for n, f in MIXED_FORMATS.items()}
SECOND = ("cpu-1", "reference")  # of other families `test_parity.py` has the reference's logits
FORKED = Tree((ROOT, 0, 0, 1, 1, 2, 3, 5, 5))


class Poisoned(TinyCheckpoint):
    """A token that attends to a poison token gets nothing but NaN."""

    def float32(self, name: str) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        array = super().float32(name)
        if name == "model.embed_tokens.weight":
            array[POISON] = np.nan
        return array


def checkpoint_of(family: str) -> TinyCheckpoint:
    if family in (MIXED, LIGHT):
        return MixedCheckpoint(
            MIXED_CONFIG, formats=MIXED_FORMATS if family == MIXED else LIGHT_FORMATS
        )
    return TinyCheckpoint(FAMILIES[family])


@memoize
def model_of(kernel_set: str, family: str, poisoned: bool = False) -> LlamaModel:
    checkpoint = Poisoned(FAMILIES[family]) if poisoned else checkpoint_of(family)
    return LlamaModel.load(checkpoint, FOR_PACKED[kernel_set]().kernels)


def with_every_set(*families: str) -> list[Any]:
    """All (kernel set, family) that go together, with 8-bit and 16-bit activations."""
    usual = [
        pytest.param(name, family, marks=pytest.mark.slow if is_second else ())
        for family in (*families, MIXED)
        for name in KERNEL_SETS
        for is_second in [name in SECOND and family not in (families[0], MIXED)]
    ]
    slow = pytest.param(INT16, MIXED, marks=pytest.mark.slow)
    return [*usual, pytest.param(INT16, LIGHT), slow]


@pytest.fixture(params=KERNEL_SETS)
def kernel_set(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(
    params=[pytest.param(each.values, marks=each.marks) for each in with_every_set(*FAMILIES)],
    ids=str,
)
def model(request: pytest.FixtureRequest) -> LlamaModel:
    return model_of(*request.param)


def tokens_for(tree: Tree, seed: int = 9) -> tuple[int, ...]:
    return tuple(int(t) for t in np.random.default_rng(seed).integers(0, 96, len(tree)))


def path_logits(model: LlamaModel, tree: Tree, tokens: tuple[int, ...], node: int) -> Logits:
    """What `node` gets when only the chain that leads to it is run, token by token."""
    cache = model.new_cache(40, 16)
    table = cache.new_table()
    extend(model, cache, table, PROMPT)
    for at in tree.path_to(node):
        logits = extend(model, cache, table, tokens[at : at + 1])
    return logits


@pytest.mark.parametrize(("kernel_set", "family"), with_every_set(*FAMILIES))
def test_logits_are_near_float64(kernel_set: str, family: str) -> None:
    """Packed weights are as near as 16-bit or 8-bit activations allow."""
    exact = naive_logits(checkpoint_of(family), PROMPT)
    got = chain_logits(model_of(kernel_set, family), PROMPT)
    is_short = kernel_set.startswith("cpu") and kernel_set != INT16
    error = (4e-2 if is_short else 2e-4) if family in (MIXED, LIGHT) else 1e-5
    error += 8 * FOR_PACKED[kernel_set]().row_rounding
    np.testing.assert_allclose(got, exact, rtol=0, atol=error * np.abs(exact).max())


def test_chunks_and_pages_do_not_show(model: LlamaModel) -> None:
    whole = chain_logits(model, PROMPT)
    for chunk_len, page_size in ((1, 16), (2, 1), (3, 3), (5, 2), (8, 64), (20, 5)):
        np.testing.assert_array_equal(chain_logits(model, PROMPT, chunk_len, page_size), whole)


def test_a_tree_node_gets_what_its_chain_gets(model: LlamaModel) -> None:
    tokens = tokens_for(FORKED)
    cache = model.new_cache(8, 5)
    table = cache.new_table()
    extend(model, cache, table, PROMPT)
    got = extend(model, cache, table, tokens, FORKED)
    for node in range(len(FORKED)):
        np.testing.assert_array_equal(
            got[node : node + 1], path_logits(model, FORKED, tokens, node)
        )


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    num_nodes = draw(st.integers(1, 12))
    return Tree(tuple(draw(st.integers(ROOT, node - 1)) for node in range(num_nodes)))


@pytest.mark.parametrize(("kernel_set", "family"), with_every_set("smollm2"))
@settings(max_examples=15, deadline=None, derandomize=True)
@given(tree=trees(), page_size=st.integers(1, 7), num_written=st.integers(0, 11))
def test_any_tree_in_one_pass_or_two(
    kernel_set: str, family: str, tree: Tree, page_size: int, num_written: int
) -> None:
    """Wherever a tree is cut, later nodes find their ancestors of the earlier pass in the cache."""
    model = model_of(kernel_set, family)
    tokens, cache = tokens_for(tree), model.new_cache(40, page_size)
    table = cache.new_table()
    extend(model, cache, table, PROMPT)
    span = all_wanted(table.reserve(len(tree)), tokens, tree)
    whole = model.forward(Plan.build([(span, table)]), cache)
    node = len(tree) - 1
    np.testing.assert_array_equal(whole[node:], path_logits(model, tree, tokens, node))
    cut = min(num_written, node)
    later = type(span)(span.start, tokens, tree, tuple(range(cut, len(tree))))
    rest = model.forward(Plan((PlanRow.of(later, table, cut),)), cache)
    np.testing.assert_array_equal(rest, whole[cut:])


def test_spans_of_several_requests_in_any_order(model: LlamaModel) -> None:
    """A prompt chunk, a plain step and a tree in one pass; pages of all of them interleaved."""
    tokens = tokens_for(FORKED)
    prompts = (PROMPT, PROMPT[3:], PROMPT[:7])
    parts = ((PROMPT[::-1], None), (tokens[:1], None), (tokens, FORKED))
    alone = []
    for prompt, (part, tree) in zip(prompts, parts, strict=True):
        cache = model.new_cache(20, 4)
        table = cache.new_table()
        extend(model, cache, table, prompt)
        alone.append(extend(model, cache, table, part, tree))
    for order in ((0, 1, 2), (2, 0, 1), (1, 2, 0)):
        cache = model.new_cache(40, 3)
        tables = [cache.new_table() for _ in prompts]
        for lo in range(0, len(PROMPT), 4):
            for table, prompt in zip(tables, prompts, strict=True):
                if prompt[lo : lo + 4]:
                    extend(model, cache, table, prompt[lo : lo + 4])
        pairs = [
            (all_wanted(tables[i].reserve(len(parts[i][0])), *parts[i]), tables[i]) for i in order
        ]
        together = model.forward(Plan.build(pairs), cache)
        np.testing.assert_array_equal(together, np.concatenate([alone[i] for i in order]))


def test_kept_rows_are_what_plain_decoding_writes(model: LlamaModel) -> None:
    """After keep(path) the answer goes on as if only the accepted tokens had ever run."""
    tokens = tokens_for(FORKED)
    for path in map(FORKED.path_to, (0, 4, 6, 7, 8)):
        cache = model.new_cache(12, 4)
        table = cache.new_table()
        extend(model, cache, table, PROMPT)
        start = table.length
        extend(model, cache, table, tokens, FORKED)
        table.keep(start, path)
        assert table.length == start + len(path)
        got = extend(model, cache, table, PROMPT[:6])
        plain = (*PROMPT, *(tokens[n] for n in path), *PROMPT[:6])
        np.testing.assert_array_equal(got, chain_logits(model, plain, chunk_len=9)[-6:])


@pytest.mark.parametrize("token", [-1, 97, 2**40])
def test_a_token_outside_the_vocabulary_is_a_broken_invariant(kernel_set: str, token: int) -> None:
    """In the first pass of a size, and in later ones, which may be replayed."""
    model = model_of(kernel_set, "llama2")
    cache = model.new_cache(8, 5)
    table = cache.new_table()
    for known in ((token, 3), (96, 3), (3, token), (token, 3)):
        if token not in known:
            extend(model, cache, table, known)
            continue
        with pytest.raises(AssertionError):
            extend(model, cache, table, known)


def test_a_plan_can_be_run_again(model: LlamaModel) -> None:
    """Another pass that was run in between leaves nothing behind."""
    cache = model.new_cache(12, 4)
    plans = []
    for tokens in (PROMPT[:3], PROMPT[5:8]):
        table = cache.new_table()
        extend(model, cache, table, PROMPT[::-1])
        plans.append(Plan.build([(all_wanted(table.reserve(3), tokens), table)]))
    first, other = (model.forward(plan, cache) for plan in plans)
    np.testing.assert_array_equal(model.forward(plans[0], cache), first)
    np.testing.assert_array_equal(model.forward(plans[1], cache), other)


@pytest.mark.parametrize("family", ["smollm2", "mistral"])
def test_neither_stale_rows_nor_other_branches_are_touched(kernel_set: str, family: str) -> None:
    """0 × NaN is NaN: freed pages, siblings and the rest of a page must be absent, not masked."""
    model = model_of(kernel_set, family, poisoned=True)
    cache = model.new_cache(8, 5)
    table = cache.new_table()
    extend(model, cache, table, (POISON,) * 40)
    table.free()
    extend(model, cache, table, PROMPT)
    tokens = tuple(POISON if n in (1, 8) else token for n, token in enumerate(tokens_for(FORKED)))
    got = extend(model, cache, table, tokens, FORKED)
    for node in range(len(FORKED)):
        if {1, 8} & set(FORKED.path_to(node)):
            assert np.isnan(got[node]).all()
        else:
            np.testing.assert_array_equal(
                got[node : node + 1], path_logits(model, FORKED, tokens, node)
            )


def test_a_long_context_is_the_same_in_any_chunks(kernel_set: str) -> None:
    """The context is longer than several blocks of keys."""
    model = model_of(kernel_set, "smollm2")
    tokens = tuple(int(t) for t in np.random.default_rng(6).integers(0, 96, 530))
    whole = chain_logits(model, tokens)
    for num, chunk_len in ((140, 1), (530, 100), (530, 257)):
        np.testing.assert_array_equal(chain_logits(model, tokens[:num], chunk_len), whole[:num])
