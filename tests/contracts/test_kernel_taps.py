"""Every kernel set with taps gives hidden states, and they change nothing else."""

from __future__ import annotations

from functools import cache as memoize
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forerun.cache import KVCache
from forerun.drafters.heads import Eagle3Head, HeadFolder
from forerun.errors import InvalidOption
from forerun.kernels import AttentionShape, Plan, ReferenceKernels, TappedKernels
from forerun.kernels.base import Batch, Norm, Store
from forerun.models.llama import LlamaModel, Taps
from forerun.types import ROOT, Span, Tree
from tests.contracts.kernel_sets import KERNEL_SETS
from tests.drafters.heads.random_heads import eagle3_config, write_eagle3
from tests.kernels.sources import F32, ArraySource
from tests.models_llama.naive import naive_hidden_states
from tests.models_llama.runs import all_wanted
from tests.models_llama.tiny import FAMILIES, TinyCheckpoint

TOKENS = tuple(int(t) for t in np.random.default_rng(6).integers(0, 96, 40))
FORKED = Tree((ROOT, 0, 0, 1, 1, 2, 3, 5, 5))
LAYERS = (0, 1, 3)
SETS = list(KERNEL_SETS)


@memoize
def model_of(kernel_set: str, family: str) -> LlamaModel:
    return LlamaModel.load(TinyCheckpoint(FAMILIES[family]), KERNEL_SETS[kernel_set]().kernels)


def tapped(model: LlamaModel, *spans: Span) -> tuple[F32, Taps]:
    """One pass over spans of different requests, each from an empty cache."""
    plan, cache = planned(model, *spans)
    taps = Taps(LAYERS)
    return model.forward(plan, cache, taps), taps


def planned(model: LlamaModel, *spans: Span) -> tuple[Plan, KVCache]:
    cache = model.new_cache(64, 4)
    pairs = []
    for span in spans:
        table = cache.new_table()
        table.reserve(len(span))
        pairs.append((span, table))
    return Plan.build(pairs), cache


@pytest.mark.parametrize("kernel_set", SETS)
@pytest.mark.parametrize("family", ["smollm2", "qwen3", "odd"])
@pytest.mark.parametrize("num_tokens", [1, 5, 33])
def test_logits_have_the_same_bits_with_and_without(
    kernel_set: str, family: str, num_tokens: int
) -> None:
    model = model_of(kernel_set, family)
    span = all_wanted(0, TOKENS[:num_tokens])
    plan, cache = planned(model, span)
    expected = model.forward(plan, cache)
    for _ in range(3):  # recorded, then replayed
        found, taps = tapped(model, span)
        assert found.tobytes() == expected.tobytes()
        assert tuple(taps.rows) == LAYERS


@pytest.mark.parametrize("kernel_set", SETS)
@pytest.mark.parametrize("family", ["smollm2", "qwen3", "mistral"])
def test_they_are_the_residual_stream_after_so_many_layers(kernel_set: str, family: str) -> None:
    """Compared with an independent model in float64."""
    model = model_of(kernel_set, family)
    _, taps = tapped(model, all_wanted(0, TOKENS[:12]))
    expected = naive_hidden_states(TinyCheckpoint(FAMILIES[family]), TOKENS[:12])
    own_set = KERNEL_SETS[kernel_set]()
    tolerance = 2e-4 + 16 * max(own_set.rounding, own_set.row_rounding)
    for layer in LAYERS:
        found = taps.rows[layer]
        np.testing.assert_allclose(found, expected[layer], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kernel_set", SETS)
def test_a_row_has_the_same_bits_in_any_batch(kernel_set: str) -> None:
    """All rows of a span come out, wanted or not, chain or tree, alone or beside others."""
    model = model_of(kernel_set, "smollm2")
    chain, tree = all_wanted(0, TOKENS[:7]), all_wanted(0, TOKENS[:9], FORKED)
    inside = Span.prompt_chunk(0, TOKENS[10:19], is_last=False)
    _, together = tapped(model, chain, inside, tree)
    first = 0
    for span in (chain, inside, tree):
        _, alone = tapped(model, span)
        for layer in LAYERS:
            rows = together.rows[layer][first : first + len(span)]
            assert rows.tobytes() == alone.rows[layer].tobytes()
        first += len(span)


@pytest.mark.parametrize("kernel_set", SETS)
@pytest.mark.parametrize("num_rows", [1, 4, 40])
def test_what_a_pass_is_given_comes_out_side_by_side(kernel_set: str, num_rows: int) -> None:
    """With odd widths, and in replays with other contents."""
    own_set = KERNEL_SETS[kernel_set]()
    assert isinstance(own_set.kernels, TappedKernels)
    k: TappedKernels = own_set.kernels
    source = ArraySource({"n": np.ones(7, np.float32), "m": np.eye(20, 12, dtype=np.float32)})
    norm, matrix = Norm(k.load_vector(source, "n"), 1e-5), k.load_matrix(source, ["m"])

    def body(batch: Batch, _store: Store) -> F32:
        a, b = k.given(batch, 0), k.given(batch, 1)
        both = k.concat([a, b])
        k.tap(both, batch)
        k.tap(a, batch)
        k.add_norm(a, k.given(batch, 2), norm)  # writes to a, which was handed out before
        k.tap(a, batch)
        return k.logits(both, matrix)

    shape, store = AttentionShape(1, 1, 2), k.new_store(AttentionShape(1, 1, 2), 1, 64)
    span = all_wanted(0, (0,) * num_rows)
    model = model_of("reference", "smollm2")
    plan, _ = planned(model, span)
    for seed in range(3):
        rng = np.random.default_rng(seed)
        a, b, c = (rng.standard_normal((num_rows, w)).astype(np.float32) for w in (7, 5, 7))
        batch = k.begin(plan, shape, np.ones(1), [a, b, c])
        logits = k.run(body, batch, store)
        both, before, after = (found[:num_rows] for found in k.taps(batch))
        assert (both == np.concatenate([a, b], axis=1)).all()
        assert (before == a).all()
        assert (after == a + c).all()
        np.testing.assert_allclose(logits[:, :12], both, rtol=1e-6 + own_set.rounding)


@pytest.mark.parametrize("flags", [{}, {"norm_output": True}, {"norm_before_residual": True}])
def test_an_eagle3_head_says_the_same_on_every_kernel_set(
    tmp_path: Path, flags: dict[str, Any]
) -> None:
    config = FAMILIES["smollm2"]
    folder = HeadFolder(write_eagle3(tmp_path / "head", eagle3_config(config, **flags)), "eagle3")
    features = np.random.default_rng(1).standard_normal((9, 3 * 48)).astype(np.float32)
    found = []
    for name in SETS:
        model = model_of(name, "smollm2")
        assert isinstance(model.kernels, TappedKernels)
        head = Eagle3Head.load(folder, model.kernels, model.embedding)
        plan, _ = planned(model, all_wanted(0, TOKENS[:9]))
        found.append(head.known(plan, head.new_cache(64, 4), features))
    for logits, fed_back in found[1:]:
        for mine, exact in zip((logits, fed_back), found[0], strict=True):  # matrices of 8 bits
            np.testing.assert_allclose(mine, exact, rtol=0, atol=0.03 * np.abs(exact).max())


def test_kernels_without_taps_are_refused() -> None:
    class NoTaps:
        name = "cuda"

    model = LlamaModel.load(TinyCheckpoint(FAMILIES["smollm2"]), ReferenceKernels())
    model.kernels = NoTaps()  # type: ignore[assignment]
    with pytest.raises(InvalidOption, match="which the cuda kernels do not hand out yet"):
        model.check_taps((1,), "it")


def test_a_layer_that_is_not_there_is_refused() -> None:
    model = LlamaModel.load(TinyCheckpoint(FAMILIES["smollm2"]), ReferenceKernels())
    model.check_taps((0, 3), "it")
    with pytest.raises(InvalidOption, match=r"after layers \[1, 4\]; the target has 3 layers"):
        model.check_taps((1, 4), "it")
