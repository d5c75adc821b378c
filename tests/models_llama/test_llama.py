"""The Llama family against a second implementation, and its switches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from forerun.errors import InvalidOption, UnsupportedModel
from forerun.kernels import Plan, ReferenceKernels
from forerun.models.config import ModelConfig, RopeScaling
from forerun.models.llama import LlamaModel
from forerun.models.rope import rope_frequencies
from forerun.types import FloatArray, Span
from tests.models_llama.naive import naive_logits
from tests.models_llama.runs import chain_logits
from tests.models_llama.tiny import FAMILIES, TinyCheckpoint, tiny_config

TOKENS = tuple(int(t) for t in np.random.default_rng(5).integers(0, 97, 40))


def logits_of(config: ModelConfig, num_layers: int | None = None) -> FloatArray:
    model = LlamaModel.load(TinyCheckpoint(config), ReferenceKernels(), num_layers)
    return chain_logits(model, TOKENS)


@pytest.mark.parametrize("family", FAMILIES)
def test_float64_logits_are_the_naive_models(family: str) -> None:
    """The same sums written twice; what is left is the rounding of the result to float32."""
    checkpoint = TinyCheckpoint(FAMILIES[family])
    model = LlamaModel.load(checkpoint, ReferenceKernels(np.float64))
    expected = naive_logits(checkpoint, TOKENS)
    np.testing.assert_array_max_ulp(chain_logits(model, TOKENS), expected.astype(np.float32), 1)


@pytest.mark.parametrize("family", FAMILIES)
def test_float32_logits_stay_within_1e_5(family: str) -> None:
    checkpoint = TinyCheckpoint(FAMILIES[family])
    expected = naive_logits(checkpoint, TOKENS)
    got = logits_of(FAMILIES[family])
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize(
    "change",
    [
        {"rope_scaling": RopeScaling("linear", factor=2.0)},
        {"rope_theta": 500.0},
        {"sliding_window": 4},
        {"attention_bias": True},
        {"qk_norm": True},
        {"tie_embeddings": True},
        {"rms_norm_eps": 1e-2},
    ],
    ids=lambda change: next(iter(change)),
)
def test_every_switch_changes_the_logits(change: dict[str, object]) -> None:
    """So agreement on a family shows that its switch was honoured."""
    assert np.abs(logits_of(tiny_config(**change)) - logits_of(tiny_config())).max() > 1e-3


def test_first_layers_are_a_model_with_the_same_norm_and_head() -> None:
    shallow = replace(tiny_config(), num_layers=2)
    np.testing.assert_array_equal(logits_of(tiny_config(), num_layers=2), logits_of(shallow))


@pytest.mark.parametrize("num_layers", [0, -1, 4])
def test_a_wrong_number_of_layers_is_refused(num_layers: int) -> None:
    with pytest.raises(InvalidOption, match=f"num_layers={num_layers} .* 1 … 3"):
        logits_of(tiny_config(), num_layers)


def test_a_span_without_wanted_logits_gives_none_and_still_writes() -> None:
    model = LlamaModel.load(TinyCheckpoint(tiny_config()), ReferenceKernels())
    cache = model.new_cache(8, 8)
    table = cache.new_table()
    first = Span.prompt_chunk(table.reserve(30), TOKENS[:30], is_last=False)
    assert model.forward(Plan.build([(first, table)]), cache).shape == (0, 97)
    last = Span.prompt_chunk(table.reserve(10), TOKENS[30:], is_last=True)
    logits = model.forward(Plan.build([(last, table)]), cache)
    np.testing.assert_array_equal(logits, chain_logits(model, TOKENS)[-1:])


class WithFactors(TinyCheckpoint):
    """A GGUF of Llama 3: the config says nothing, the file carries the divisors."""

    factors = np.array([1, 2, 4, 8], dtype=np.float32)

    def has(self, name: str) -> bool:
        return name == "rope_freqs.weight" or super().has(name)

    def float32(self, name: str) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        return self.factors if name == "rope_freqs.weight" else super().float32(name)


def test_rope_factors_of_the_file_divide_the_frequencies() -> None:
    plain = rope_frequencies(TinyCheckpoint(tiny_config()))
    np.testing.assert_array_equal(
        rope_frequencies(WithFactors(tiny_config())), plain / [1, 2, 4, 8]
    )


def test_llama3_scaling_keeps_fast_and_stretches_slow_frequencies() -> None:
    scaling = RopeScaling("llama3", factor=8.0, original_max_len=8192)
    config = tiny_config(head_dim=64, rope_theta=500000.0)
    plain = rope_frequencies(TinyCheckpoint(config))
    ratio = rope_frequencies(TinyCheckpoint(replace(config, rope_scaling=scaling))) / plain
    assert ratio[0] == 1
    assert ratio[-1] == pytest.approx(1 / 8)
    assert np.all(np.diff(ratio) <= 0)
    assert np.any((ratio > 0.13) & (ratio < 0.99))


def test_an_unknown_rope_scaling_is_refused_by_name() -> None:
    config = tiny_config(rope_scaling=RopeScaling("yarn", factor=2.0))
    with pytest.raises(UnsupportedModel, match="'yarn'"):
        rope_frequencies(TinyCheckpoint(config))
