"""Options, threads, replayed passes, and quantising on load."""

from __future__ import annotations

import gc
import threading
import time
import tracemalloc
import weakref

import numpy as np
import pytest

from forerun import usable_cores
from forerun.errors import InvalidOption, InvalidWeights
from forerun.kernels import AttentionShape, Norm, Plan, PlanRow
from forerun.kernels.cpu import CpuKernels
from forerun.kernels.cpu.attention.kv_store import KVStore
from forerun.kernels.cpu.runtime.batch import CpuBatch
from forerun.kernels.cpu.runtime.program import Rows
from forerun.kernels.cpu.weights.quantize import quantize_rows
from forerun.models.llama import LlamaModel
from forerun.models.weights.dequantize import dequantize
from forerun.models.weights.formats import FORMATS
from forerun.sampling import Noise
from forerun.types import Span, Tree
from forerun.usable_cores import num_usable_cores
from tests.contracts.kernel_sets import CACHE_DIR
from tests.kernels.sources import F32, ArraySource, normal
from tests.kernels_cpu.packed import (
    MIXED_CONFIG,
    MIXED_FORMATS,
    MixedCheckpoint,
    PackedSource,
    packed,
)
from tests.kernels_cpu.products.test_formats import kernels, product
from tests.models_llama.tiny import FAMILIES, TinyCheckpoint, tiny_config


@pytest.mark.parametrize("num_threads", [0, -1, 10_000])
def test_a_wrong_number_of_threads_is_refused(num_threads: int) -> None:
    with pytest.raises(InvalidOption, match=f"num_threads={num_threads} .* give 1 … "):
        CpuKernels(num_threads, cache_dir=CACHE_DIR)


def test_threads_default_to_the_cores_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usable_cores, "cpu_quota", lambda: None)
    assert CpuKernels(cache_dir=CACHE_DIR).num_threads == num_usable_cores()


def test_an_unknown_quantization_is_refused_by_name() -> None:
    with pytest.raises(InvalidOption, match="did you mean 'int8'"):
        CpuKernels(quantization="int9", cache_dir=CACHE_DIR)


def test_unknown_activations_are_refused_by_name() -> None:
    with pytest.raises(InvalidOption, match="did you mean 'int8'"):
        CpuKernels(activations="int4", cache_dir=CACHE_DIR)


def test_int8_activations_are_what_256_steps_can_say() -> None:
    """Values that are whole steps of their block are exact; others go to the nearest step."""
    k = CpuKernels(activations="int8", cache_dir=CACHE_DIR)
    block = np.frombuffer(np.float16(1).tobytes() + bytes([1, *[0] * 31]), np.uint8)
    source = PackedSource("Q8_0", np.tile(block, (16, 1)))
    x = np.zeros((255, 32), np.float32)
    x[:, 0], x[:, 1] = np.arange(-127, 128), 127
    np.testing.assert_array_equal(product(k, source, x), np.repeat(x[:, :1], 16, axis=1))
    x[1:-1, 0] += 0.4
    np.testing.assert_array_equal(product(k, source, x), np.repeat(np.rint(x[:, :1]), 16, axis=1))


@pytest.mark.parametrize(
    ("quantization", "held", "error"), [("int8", "Q8_0", 0.01), ("int4", "Q4_0", 0.2)]
)
def test_float_matrices_are_quantised_on_load(quantization: str, held: str, error: float) -> None:
    packing = CpuKernels(quantization=quantization, cache_dir=CACHE_DIR)
    for weight_format in ("F32", "F16", "BF16"):
        source = PackedSource(weight_format, packed(weight_format, 40, 128))
        matrix = packing.load_matrix(source, ["w"])
        assert [part.weight_format for part in matrix.parts] == [held]
        x = normal(1, 3, 128)
        exact = x @ source.float32("w").T
        got = product(packing, source, x)
        assert np.sqrt(((got - exact) ** 2).mean()) < error * exact.std()


@pytest.mark.parametrize("weight_format", ["Q8_0", "Q4_0"])
def test_quantised_blocks_are_nearest(weight_format: str) -> None:
    """Weights come back within half a step, or one step for int4, whose range is one-sided."""
    rows = normal(3, 20, 96)
    rows[4] = 0
    back = dequantize(quantize_rows(rows, weight_format), weight_format)
    largest = np.abs(rows.reshape(-1, 32)).max(axis=1).repeat(32).reshape(rows.shape)
    step = largest / (127 if weight_format == "Q8_0" else 8)
    assert np.all(np.abs(back - rows) <= step * (0.51 if weight_format == "Q8_0" else 1.01))
    assert not back[4].any()


def forward(model: LlamaModel, tokens: tuple[int, ...]) -> np.ndarray:
    cache = model.new_cache(4, 16)
    table = cache.new_table()
    out = []
    for token in tokens:
        span = Span(table.reserve(1), (token,), Tree.chain(1), (0,))
        out.append(model.forward(Plan.build([(span, table)]), cache))
    return np.concatenate(out)


def test_two_models_share_a_kernel_set_and_keep_their_own_passes() -> None:
    shared = kernels()
    one = LlamaModel.load(TinyCheckpoint(FAMILIES["smollm2"]), shared)
    two = LlamaModel.load(TinyCheckpoint(FAMILIES["smollm2"], seed=1), shared)
    tokens = (3, 1, 4, 1, 5, 9, 2, 6)
    alone = [
        forward(LlamaModel.load(TinyCheckpoint(FAMILIES["smollm2"], seed=seed), kernels()), tokens)
        for seed in (0, 1)
    ]
    for _ in range(2):
        np.testing.assert_array_equal(forward(one, tokens), alone[0])
        np.testing.assert_array_equal(forward(two, tokens), alone[1])


@pytest.mark.skipif(num_usable_cores() < 2, reason="no thread joins on one core")
def test_threads_that_look_out_for_a_pass_change_no_bits_and_go_with_their_kernels() -> None:
    """Passes in a row, and some so far apart that threads no longer poll for the next."""
    checkpoint, before = TinyCheckpoint(FAMILIES["smollm2"]), set(threading.enumerate())
    alone = LlamaModel.load(checkpoint, CpuKernels(1, cache_dir=CACHE_DIR))
    model = LlamaModel.load(checkpoint, CpuKernels(2, cache_dir=CACHE_DIR))
    (thread,) = set(threading.enumerate()) - before
    expected = forward(alone, (1, 2, 3))
    for gap in (0.0, 0.0, 0.0005, 0.001, 0.002, 0.02) * 20:
        time.sleep(gap)
        assert forward(model, (1, 2, 3)).tobytes() == expected.tobytes()
    del model
    gc.collect()
    thread.join(timeout=20)
    assert not thread.is_alive()


def test_rows_held_by_a_caller_outlive_other_work() -> None:
    k = kernels()
    matrix = k.load_matrix(ArraySource({"w": normal(1, 64, 48)}), ["w"])
    x = normal(2, 3, 48)
    held = k.linear(k.rows(x), matrix)
    first = np.asarray(held)
    for seed in range(20):
        np.asarray(k.linear(k.rows(normal(seed, 3, 48)), matrix))
    np.testing.assert_array_equal(np.asarray(held), first)


@pytest.mark.parametrize("weight_format", ["Q8_0", "Q4_1", "Q6_K"])
def test_a_corrupt_block_is_named_by_tensor_and_row(weight_format: str) -> None:
    data = packed(weight_format, 20, 512)
    at = 208 if weight_format == "Q6_K" else 0
    row_of_blocks = data.reshape(20, -1, FORMATS[weight_format].block_bytes)
    row_of_blocks[13, 1, at : at + 2] = np.frombuffer(np.float16(np.inf).tobytes(), np.uint8)
    with pytest.raises(InvalidWeights, match="'w' has a block without a finite scale in row 13"):
        kernels().load_matrix(PackedSource(weight_format, data), ["w"])


@pytest.mark.parametrize("value", [np.inf, np.nan])
@pytest.mark.parametrize(("weight_format", "quantization"), [("Q5_1", None), ("F16", "int4")])
def test_a_corrupt_weight_that_is_packed_is_named_too(
    weight_format: str, quantization: str | None, value: float
) -> None:
    data = packed(weight_format, 2100, 128)  # more than one slice
    data[2077, 24:26] = np.frombuffer(np.float16(value).tobytes(), np.uint8)  # a block's scale
    k = CpuKernels(1, quantization=quantization, cache_dir=CACHE_DIR)
    with pytest.raises(InvalidWeights, match="'w' has a weight in row 2077 that is infinite"):
        k.load_matrix(PackedSource(weight_format, data), ["w"])


def test_a_weight_too_large_for_its_scale_is_named() -> None:
    weight = normal(1, 20, 64)
    weight[13, 5] = 1e7
    k = CpuKernels(1, quantization="int8", cache_dir=CACHE_DIR)
    with pytest.raises(InvalidWeights, match=r"'w' has a weight in row 13 .* too large for Q8_0"):
        k.load_matrix(ArraySource({"w": weight}), ["w"])


@pytest.mark.parametrize(("weight_format", "quantization"), [("Q5_0", None), ("F32", "int8")])
def test_packing_never_holds_floats_of_the_whole(
    weight_format: str, quantization: str | None
) -> None:
    source = PackedSource(weight_format, packed(weight_format, 8192, 1024))
    k = CpuKernels(1, quantization=quantization, cache_dir=CACHE_DIR)
    k.load_matrix(PackedSource("Q8_0", packed("Q8_0", 8, 64)), ["w"])  # compile beforehand
    tracemalloc.start()
    k.load_matrix(source, ["w"])
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    num_packed = 8192 * 1024 * 34 // 32
    assert most < num_packed + (12 << 20)  # floats of the whole would be 32 MiB


def test_what_has_no_kernel_is_told_once_per_load() -> None:
    formats = {"up_proj": "Q5_0", "down_proj": "Q5_0", "o_proj": "Q5_1"}
    checkpoint = MixedCheckpoint(MIXED_CONFIG, formats=formats)
    k = kernels()
    for _ in range(2):
        with pytest.warns(RuntimeWarning) as heard:
            LlamaModel.load(checkpoint, k)
        (warning,) = heard
        assert "are held as Q8_0 (2 in Q5_1, 4 in Q5_0); a file in" in str(warning.message)
    LlamaModel.load(TinyCheckpoint(FAMILIES["smollm2"]), k)  # nothing to tell


def test_quantization_that_packs_nothing_is_told() -> None:
    formats = dict.fromkeys(MIXED_FORMATS, "Q8_0")
    cases = [
        (MixedCheckpoint(MIXED_CONFIG, formats=formats), "the weights are packed already"),
        (TinyCheckpoint(FAMILIES["odd"]), "no matrix has rows that divide into blocks of 32"),
    ]
    for checkpoint, why in cases:
        k = CpuKernels(1, quantization="int8", cache_dir=CACHE_DIR)
        with pytest.warns(RuntimeWarning) as heard:
            LlamaModel.load(checkpoint, k)
        (warning,) = heard
        assert str(warning.message) == f"quantization 'int8' packs nothing: {why}; drop it."


def test_activations_that_nothing_meets_are_refused() -> None:
    floats = TinyCheckpoint(FAMILIES["odd"])
    for quantization, remedy in ((None, "pack the weights with quantization"), ("int8", "both")):
        k = CpuKernels(1, activations="int16", quantization=quantization, cache_dir=CACHE_DIR)
        with pytest.raises(InvalidOption, match=rf"'int16' change nothing where .*{remedy}\.$"):
            LlamaModel.load(floats, k)


def test_progress_counts_tensors() -> None:
    heard: list[tuple[str, int, int]] = []
    k = CpuKernels(1, quantization="int8", cache_dir=CACHE_DIR, progress=lambda *s: heard.append(s))
    checkpoint = TinyCheckpoint(tiny_config(hidden_size=64, attention_bias=True))
    num_tensors = len(list(checkpoint.names()))
    LlamaModel.load(checkpoint, k)
    counted = [(done, all_of) for _what, done, all_of in heard if all_of]
    assert counted == [(idx, num_tensors) for idx in range(num_tensors)]
    assert {"loading weights", "packing weights as Q8_0"} <= {what for what, *_ in heard}


def test_what_is_recorded_is_not_written_over_before_it_runs() -> None:
    """Neither arrays that the caller has dropped, nor what lies between two steps."""
    k = kernels()
    matrix = k.load_matrix(ArraySource({"w": normal(1, 64, 64)}), ["w"])
    x = [normal(seed, 3, 64) for seed in range(4)]

    def twice(values: F32) -> Rows:
        return k.linear(k.linear(k.rows(values), matrix), matrix)

    alone = [np.asarray(twice(values)) for values in x]
    together = [twice(values) for values in x]
    for order in ((1, 0, 3, 2), (2, 3, 0, 1)):
        for idx in order:
            np.testing.assert_array_equal(np.asarray(together[idx]), alone[idx])


def test_a_residual_of_another_program_is_run_and_held() -> None:
    k = kernels()
    weight = normal(1, 64, 64)
    source = ArraySource({"w": weight, "norm": np.ones(64, np.float32)})
    matrix, norm = k.load_matrix(source, ["w"]), Norm(k.load_vector(source, "norm"), 1e-5)
    x, delta = normal(2, 3, 64), normal(3, 3, 64)
    total, _ = k.add_norm(k.rows(x), k.linear(k.rows(delta), matrix), norm)
    np.asarray(k.linear(k.rows(x), matrix))  # takes the free buffers
    np.testing.assert_allclose(np.asarray(total), x + delta @ weight.T, atol=1e-4)


def test_no_step_is_given_the_same_memory_twice() -> None:
    """Where digits are as long as the row itself, the only free buffer may be the residual that
    the norm reads: then it must not write digits."""
    config = tiny_config(hidden_size=32, intermediate_size=64)
    k = CpuKernels(num_threads=1, activations="int16", quantization="int8", cache_dir=CACHE_DIR)
    model = LlamaModel.load(TinyCheckpoint(config), k)
    cache = model.new_cache(4, 16)
    table = cache.new_table()
    model.forward(Plan.build([(Span.all_wanted(table.reserve(3), (3, 1, 4)), table)]), cache)
    (whole,) = [kind for kind in k.kinds_of_pass(cache.store, 3) if kind.name == "whole"]
    for step in whole.steps.tolist():
        addresses = [field for field in step[3:] if field > 1 << 20]
        assert len(addresses) == len(set(addresses)), step


def test_norms_and_silu_write_their_rows_as_digits() -> None:
    """So a layer has four steps beside products and attention: two norms, the SiLU, and one that
    makes digits of attention's rows."""
    counts = []
    for num_layers in (1, 2):
        sizes = {"hidden_size": 64, "intermediate_size": 64, "head_dim": 16}
        config = tiny_config(num_layers=num_layers, **sizes)
        k = CpuKernels(num_threads=1, quantization="int8", cache_dir=CACHE_DIR)
        model = LlamaModel.load(TinyCheckpoint(config), k)
        cache = model.new_cache(4, 16)
        table = cache.new_table()
        model.forward(Plan.build([(Span.all_wanted(table.reserve(1), (3,)), table)]), cache)
        (norms,) = [kind for kind in k.kinds_of_pass(cache.store, 1) if kind.name == "norm"]
        counts.append(len(norms.steps))
    assert counts[1] - counts[0] == 4


def test_recordings_go_with_the_cache() -> None:
    model = LlamaModel.load(TinyCheckpoint(FAMILIES["smollm2"]), kernels())
    cache = model.new_cache(4, 16)
    table = cache.new_table()
    for num in (1, 2, 1, 2):  # recorded, then replayed
        span = Span.all_wanted(table.reserve(num), (3,) * num)
        model.forward(Plan.build([(span, table)]), cache)
    store = weakref.ref(cache.store)
    del cache, table
    gc.collect()
    assert store() is None


def test_a_pass_that_fails_loses_no_buffer_that_others_recorded() -> None:
    k = kernels(1)
    table = k.load_matrix(ArraySource({"w": normal(1, 9, 64)}), ["w"])
    store, shape = k.new_store(AttentionShape(1, 1, 2), 1, 4), AttentionShape(1, 1, 2)

    def batch() -> CpuBatch:
        span = Span(0, (3,), Tree.chain(1), (0,))
        return k.begin(Plan((PlanRow(span, np.arange(1)),)), shape, np.zeros(1))

    def whole(batch: CpuBatch, _store: KVStore) -> F32:
        return k.logits(k.embed(table, batch), table)

    def failing(batch: CpuBatch, _store: KVStore) -> F32:
        k.linear(k.embed(table, batch), table)
        raise RuntimeError("half-way")

    first = k.run(whole, batch(), store)
    with pytest.raises(RuntimeError, match="half-way"):
        k.run(failing, batch(), store)
    (recording, _), *_ = store.passes.values()
    gc.collect()
    free = [b.data for buffers in k._kept_buffers._free.values() for b in buffers]
    assert any(np.shares_memory(recording.result, data) for data in free)
    np.testing.assert_array_equal(k.run(whole, batch(), store), first)


def test_recordings_share_the_memory_of_their_results() -> None:
    """One [R, V] for each recording would be 150 MB for SmolLM2."""
    model = LlamaModel.load(TinyCheckpoint(FAMILIES["smollm2"]), kernels())
    cache = model.new_cache(8, 16)
    for num in (17, 18, 20, 32):  # buffers are made for 32 rows
        table = cache.new_table()
        span = Span.all_wanted(table.reserve(num), (3,) * num)
        model.forward(Plan.build([(span, table)]), cache)
        table.free()
    kept = cache.store.passes
    addresses = {recording.result.ctypes.data for recording, _ in kept.values()}
    assert (len(kept), len(addresses)) == (4, 1)


@pytest.mark.parametrize("heights", [(32,), (33,), (32, 48), (32, 33)], ids=str)
def test_logits_are_the_callers_own(heights: tuple[int, ...]) -> None:
    """For heads of one part or two, with padded rows and without, recorded and replayed."""
    k = kernels(1)
    weights = {str(idx): normal(idx, height, 64) for idx, height in enumerate(heights)}
    sources = ArraySource({"w": normal(9, 5, 64), **weights})
    table, head = k.load_matrix(sources, ["w"]), k.load_matrix(sources, list(weights))
    shape = AttentionShape(1, 1, 2)
    store = k.new_store(shape, 1, 4)

    def run(*tokens: int) -> F32:
        span = Span(0, tokens, Tree.chain(len(tokens)), tuple(range(len(tokens))))
        batch = k.begin(Plan((PlanRow(span, np.arange(len(tokens))),)), shape, np.zeros(1))
        return k.run(whole, batch, store)

    def whole(batch: CpuBatch, _store: KVStore) -> F32:
        return k.logits(k.embed(table, batch), head)

    every = np.concatenate([np.asarray(each) for each in weights.values()])
    exact = sources.float32("w") @ every.T
    asked = [(0, 1), (2, 3), (4, 0)]
    answers = [run(*tokens) for tokens in asked]
    for tokens, answer in zip(asked, answers, strict=True):
        np.testing.assert_allclose(answer, exact[list(tokens)], rtol=1e-4, atol=1e-4)
    for kind in k.kinds_of_pass(store, 2):  # a profile runs them into the recording's own memory
        kind.run()
    for tokens, answer in zip(asked, answers, strict=True):
        np.testing.assert_allclose(answer, exact[list(tokens)], rtol=1e-4, atol=1e-4)


def test_nothing_that_draws_is_compiled_within_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiling would hold up all requests for seconds."""
    k = CpuKernels(num_threads=1, cache_dir=CACHE_DIR)
    with k.loading(1):
        pass

    def compiles(*_args: object) -> None:
        raise AssertionError("compiled after loading")

    monkeypatch.setattr(k._library, "function", compiles)
    logits = np.zeros(100, np.float32)
    assert 0 <= k.gumbel_argmax(logits.astype(np.float64), Noise(1), 0) < 100
    low, high = k.weight_sum(logits, 0.0, 1.0)
    assert low <= 100 <= high
