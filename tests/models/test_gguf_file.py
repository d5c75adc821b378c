"""GGUF checkpoints: names, row order, configs, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from forerun.errors import InvalidWeights, UnsupportedModel
from forerun.models.config import ModelConfig, RopeScaling
from forerun.models.gguf.file import GgufCheckpoint
from forerun.models.weights.dequantize import dequantize
from tests.models.tiny_files import (
    LLAMA,
    gguf_order,
    random_arrays,
    write_gguf,
    write_tiny_gguf,
)

QWEN2 = replace(LLAMA, architecture="qwen2", attention_bias=True, tie_embeddings=False)
QWEN3 = replace(LLAMA, architecture="qwen3", qk_norm=True, head_dim=16)


def test_a_llama_file_comes_back_in_half_split_order(tmp_path: Path) -> None:
    arrays = write_tiny_gguf(tmp_path / "m.gguf")
    checkpoint = GgufCheckpoint(tmp_path / "m.gguf")
    assert checkpoint.config == LLAMA
    assert set(checkpoint.names()) == set(arrays)
    for name, array in arrays.items():
        assert np.array_equal(checkpoint.float32(name), array), name


def test_biases_of_a_llama_follow_the_rows(tmp_path: Path) -> None:
    config = replace(LLAMA, attention_bias=True)
    arrays = random_arrays(config)
    arrays |= {f"model.layers.{i}.self_attn.o_proj.bias": np.ones(32, np.float32) for i in (0, 1)}
    write_gguf(tmp_path / "m.gguf", config, gguf_order(config, arrays))
    checkpoint = GgufCheckpoint(tmp_path / "m.gguf")
    for name, array in arrays.items():
        assert np.array_equal(checkpoint.float32(name), array), name


@pytest.mark.parametrize("config", [QWEN2, QWEN3], ids=["qwen2", "qwen3"])
def test_qwen_rows_stay_as_they_are(tmp_path: Path, config: ModelConfig) -> None:
    arrays = random_arrays(config)
    write_gguf(tmp_path / "m.gguf", config, arrays)
    checkpoint = GgufCheckpoint(tmp_path / "m.gguf")
    assert checkpoint.config == config
    for name, array in arrays.items():
        assert np.array_equal(checkpoint.float32(name), array), name


def test_raw_blocks_are_mapped_rows(tmp_path: Path) -> None:
    arrays = write_tiny_gguf(tmp_path / "m.gguf")
    tensor = GgufCheckpoint(tmp_path / "m.gguf").tensor("model.layers.1.mlp.up_proj.weight")
    assert (tensor.format, tensor.shape) == ("F32", (32, 32))
    assert tensor.data.shape == (32, 128)
    assert not tensor.data.flags.owndata
    assert np.array_equal(dequantize(tensor.data[3:4], "F32")[0], arrays[tensor.name][3])


def test_llama3_rope_factors_are_a_tensor(tmp_path: Path) -> None:
    arrays = gguf_order(LLAMA, random_arrays(LLAMA))
    arrays["rope_freqs.weight"] = np.array([1, 1, 4, 8], np.float32)
    write_gguf(tmp_path / "m.gguf", LLAMA, arrays)
    checkpoint = GgufCheckpoint(tmp_path / "m.gguf")
    assert checkpoint.float32("rope_freqs.weight").tolist() == [1, 1, 4, 8]


def test_linear_rope_scaling_is_read(tmp_path: Path) -> None:
    fields = {"rope__scaling__type": "linear", "rope__scaling__factor": 4.0}
    write_gguf(tmp_path / "m.gguf", LLAMA, random_arrays(LLAMA), **fields)
    assert GgufCheckpoint(tmp_path / "m.gguf").config.rope_scaling == RopeScaling("linear", 4.0)


def test_other_rope_scaling_is_refused(tmp_path: Path) -> None:
    fields = {"rope__scaling__type": "yarn", "rope__scaling__factor": 4.0}
    write_gguf(tmp_path / "m.gguf", LLAMA, random_arrays(LLAMA), **fields)
    with pytest.raises(UnsupportedModel, match="yarn"):
        GgufCheckpoint(tmp_path / "m.gguf")


def test_a_part_of_a_split_model_says_so(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", LLAMA, random_arrays(LLAMA), split__count=3)
    with pytest.raises(UnsupportedModel, match="one part of a split model"):
        GgufCheckpoint(tmp_path / "m.gguf")


def test_an_unknown_architecture_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", replace(LLAMA, architecture="mamba"), random_arrays(LLAMA))
    with pytest.raises(UnsupportedModel, match=r"'mamba'.*llama, mistral, qwen2, qwen3"):
        GgufCheckpoint(tmp_path / "m.gguf")


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    arrays = random_arrays(LLAMA)
    del arrays["model.layers.1.mlp.up_proj.weight"]
    write_gguf(tmp_path / "m.gguf", LLAMA, arrays)
    with pytest.raises(InvalidWeights, match=r"model\.layers\.1\.mlp\.up_proj\.weight"):
        GgufCheckpoint(tmp_path / "m.gguf")


def test_a_wrong_shape_is_named(tmp_path: Path) -> None:
    arrays = random_arrays(LLAMA)
    arrays["model.layers.0.mlp.up_proj.weight"] = np.zeros((31, 32), np.float32)
    write_gguf(tmp_path / "m.gguf", LLAMA, arrays)
    with pytest.raises(InvalidWeights, match=r"mlp\.up_proj\.weight.*\[31, 32\].*\[32, 32\]"):
        GgufCheckpoint(tmp_path / "m.gguf")


def test_a_tensor_without_a_place_is_refused(tmp_path: Path) -> None:
    arrays = random_arrays(replace(LLAMA, num_layers=3))
    write_gguf(tmp_path / "m.gguf", LLAMA, arrays)
    with pytest.raises(UnsupportedModel, match=r"model\.layers\.2\."):
        GgufCheckpoint(tmp_path / "m.gguf")


def test_absurd_sizes_are_refused_before_anything_is_sized_by_them(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", replace(LLAMA, max_len=2**31), random_arrays(LLAMA))
    with pytest.raises(InvalidWeights, match="max_len"):
        GgufCheckpoint(tmp_path / "m.gguf")


def test_smollm2_opens(smollm2_path: Path) -> None:
    checkpoint = GgufCheckpoint(smollm2_path)
    config = checkpoint.config
    assert (config.num_layers, config.hidden_size, config.head_dim) == (30, 576, 64)
    assert (config.rms_norm_eps, config.rope_theta, config.tie_embeddings) == (1e-5, 1e5, True)
    tensor = checkpoint.tensor("model.layers.29.self_attn.q_proj.weight")
    assert (tensor.format, tensor.data.shape) == ("Q4_1", (576, 360))
    embedding = checkpoint.tensor("model.embed_tokens.weight")
    assert (embedding.format, embedding.shape) == ("Q8_0", (49152, 576))
