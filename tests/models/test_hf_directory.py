"""Hugging Face directories: configs old and new, shards, bfloat16, and what is refused."""

from __future__ import annotations

import json
import random
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from forerun.errors import ForerunError, InvalidWeights, UnsupportedModel
from forerun.models.config import ModelConfig, RopeScaling
from forerun.models.hf.config import read_hf_config
from forerun.models.hf.directory import HfCheckpoint
from forerun.models.hf.safetensors_file import SafetensorsFile
from forerun.models.opening import open_checkpoint
from forerun.models.weights.dequantize import dequantize
from tests.models.tiny_files import (
    LLAMA,
    hf_values,
    random_arrays,
    write_hf,
    write_shards,
    write_tiny_gguf,
)

LLAMA3_ROPE = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}


def _config(**changes: Any) -> ModelConfig:
    return read_hf_config(hf_values(LLAMA, **changes), Path("config.json"))


@pytest.mark.parametrize("architecture", ["llama", "mistral", "qwen2", "qwen3"])
def test_a_directory_comes_back(tmp_path: Path, architecture: str) -> None:
    config = replace(
        LLAMA,
        architecture=architecture,
        tie_embeddings=False,
        attention_bias=architecture == "qwen2",
        qk_norm=architecture == "qwen3",
        sliding_window=4096 if architecture == "mistral" else None,  # its default
    )
    arrays = random_arrays(config)
    write_hf(tmp_path, config, arrays, head_dim=8)
    checkpoint = open_checkpoint(tmp_path)
    assert checkpoint.config == config
    assert set(checkpoint.names()) == set(arrays)
    for name, array in arrays.items():
        assert np.array_equal(checkpoint.float32(name), array), name


def test_shards_come_back(tmp_path: Path) -> None:
    arrays = random_arrays(LLAMA)
    write_hf(tmp_path, LLAMA, arrays)
    write_shards(tmp_path, arrays)
    checkpoint = HfCheckpoint(tmp_path)
    for name, array in arrays.items():
        assert np.array_equal(checkpoint.float32(name), array), name


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    arrays = random_arrays(LLAMA)
    write_hf(tmp_path, LLAMA, arrays)
    write_shards(tmp_path, arrays)
    (tmp_path / "two.safetensors").unlink()
    with pytest.raises(InvalidWeights, match=r"two\.safetensors"):
        HfCheckpoint(tmp_path)


def test_a_shard_outside_the_directory_is_refused(tmp_path: Path) -> None:
    write_hf(tmp_path / "m", LLAMA, random_arrays(LLAMA))
    index = {"weight_map": {"model.norm.weight": "../secret.safetensors"}}
    (tmp_path / "m" / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(InvalidWeights, match="plain file name"):
        HfCheckpoint(tmp_path / "m")


def test_bfloat16_is_read_without_torch(tmp_path: Path) -> None:
    values = np.array([[1.0, -2.5, 3.140625]], np.float32)
    raw = (values.view(np.uint32) >> 16).astype("<u2").tobytes()
    header = {"x": {"dtype": "BF16", "shape": [1, 3], "data_offsets": [0, 6]}}
    path = tmp_path / "x.safetensors"
    path.write_bytes(_safetensors(header, raw))
    tensor = SafetensorsFile(path).tensor("x")
    assert (tensor.format, tensor.data.shape) == ("BF16", (1, 6))
    assert np.array_equal(dequantize(tensor.data, "BF16"), values)


def test_a_tied_head_that_the_file_repeats_is_left_out(tmp_path: Path) -> None:
    arrays = random_arrays(LLAMA)
    arrays["lm_head.weight"] = arrays["model.embed_tokens.weight"]
    write_hf(tmp_path, LLAMA, arrays)
    assert not HfCheckpoint(tmp_path).has("lm_head.weight")


def test_rope_scaling_is_read_in_both_spellings() -> None:
    expected = RopeScaling("llama3", 8.0, 1.0, 4.0, 32)
    old = _config(rope_scaling={"rope_type": "llama3", **LLAMA3_ROPE}, rope_theta=5e5)
    new = _config(rope_parameters={"rope_type": "llama3", "rope_theta": 5e5, **LLAMA3_ROPE})
    assert old == new
    assert (old.rope_scaling, old.rope_theta) == (expected, 5e5)


def test_older_spelling_of_the_kind_is_read() -> None:
    scaling = {"type": "linear", "factor": 2.0}
    assert _config(rope_scaling=scaling).rope_scaling == RopeScaling("linear", 2.0)


@pytest.mark.parametrize(
    ("architecture", "changes", "window"),
    [
        ("mistral", {"sliding_window": 16}, 16),
        ("mistral", {"sliding_window": None}, None),
        ("mistral", {}, 4096),
        ("qwen2", {"sliding_window": 16, "use_sliding_window": False}, None),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 16}, None),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 0}, 16),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 2}, None),
        ("qwen3", {"use_sliding_window": True, "max_window_layers": 0}, 4096),
        ("qwen3", {"use_sliding_window": True, "max_window_layers": 3}, None),
        (
            "qwen3",
            {"use_sliding_window": True, "max_window_layers": 1, "sliding_window": None},
            None,
        ),
    ],
)
def test_sliding_windows(architecture: str, changes: dict[str, Any], window: int | None) -> None:
    values = {**hf_values(LLAMA, model_type=architecture), **changes}
    assert read_hf_config(values, "config.json").sliding_window == window


def test_a_window_in_some_layers_is_refused() -> None:
    windowed = {"model_type": "qwen2", "use_sliding_window": True, "max_window_layers": 1}
    with pytest.raises(UnsupportedModel, match="in only some layers"):
        _config(**windowed)
    with pytest.raises(UnsupportedModel, match="in only some layers"):
        _config(model_type="qwen2", use_sliding_window=True, num_hidden_layers=29)


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"model_type": "gpt_neox"}, r"'gpt_neox'.*llama, mistral, qwen2, qwen3"),
        ({"hidden_act": "gelu"}, "gelu"),
        ({"quantization_config": {"bits": 4}}, "GGUF"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "yarn"),
    ],
)
def test_variants_are_refused_by_name(changes: dict[str, Any], names: str) -> None:
    with pytest.raises(UnsupportedModel, match=names):
        _config(**changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"hidden_size": "32"},
        {"num_hidden_layers": 2.5},
        {"rms_norm_eps": True},
        {"rope_scaling": 3},
    ],
)
def test_values_of_the_wrong_type_are_named(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidWeights, match=next(iter(changes))):
        _config(**changes)


@pytest.mark.parametrize(
    "changes", [{"num_attention_heads": 0}, {"num_key_value_heads": 3}, {"rms_norm_eps": 2}]
)
def test_impossible_numbers_are_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    write_hf(tmp_path, LLAMA, random_arrays(LLAMA), **changes)
    with pytest.raises(InvalidWeights):
        HfCheckpoint(tmp_path)


def test_a_directory_without_safetensors_says_what_to_do(tmp_path: Path) -> None:
    write_hf(tmp_path, LLAMA, random_arrays(LLAMA))
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(InvalidWeights, match="convert the weights to safetensors"):
        HfCheckpoint(tmp_path)


def test_a_directory_with_one_gguf_file_opens(tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "m.gguf")
    assert open_checkpoint(tmp_path).config == LLAMA
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')  # as many repositories have
    assert open_checkpoint(tmp_path).config == LLAMA


def test_safetensors_come_before_a_gguf_file(tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "m.gguf")
    write_hf(tmp_path, LLAMA, random_arrays(LLAMA))
    assert isinstance(open_checkpoint(tmp_path), HfCheckpoint)


def test_of_several_gguf_files_one_must_be_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    for name in ("a", "b"):
        write_tiny_gguf(tmp_path / f"{name}.gguf")
    with pytest.raises(InvalidWeights, match="2 GGUF files; give the path of one"):
        open_checkpoint(tmp_path)


def _safetensors(header: Any, data: bytes) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def _entry(**changes: Any) -> dict[str, Any]:
    return {"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}}


DAMAGE: dict[str, tuple[bytes, str]] = {
    "short": (b"abc", "header length"),
    "huge header": (struct.pack("<Q", 2**62) + b"{}", "claims"),
    "not JSON": (struct.pack("<Q", 2) + b"{]", "JSON"),
    "deep JSON": (struct.pack("<Q", 200_000) + b"[" * 200_000, "JSON"),
    "a list": (_safetensors([], b""), "JSON object"),
    "twice": (
        struct.pack("<Q", 17) + b'{"x": {}, "x":{}}',
        "twice",
    ),
    "truncated": (_safetensors(_entry(), bytes(7)), "'x' ends at byte"),
    "trailing": (_safetensors(_entry(), bytes(9)), "1 bytes follow"),
    "shape": (_safetensors(_entry(shape=[3]), bytes(8)), "'x' has 8 bytes"),
    "negative shape": (_safetensors(_entry(shape=[-2]), bytes(8)), "shape of tensor 'x'"),
    "backward": (_safetensors(_entry(data_offsets=[8, 0]), bytes(8)), "tensor 'x'"),
    "hole": (_safetensors(_entry(data_offsets=[8, 16]), bytes(16)), "'x' starts at"),
    "no dtype": (_safetensors(_entry(dtype=None), bytes(8)), "dtype of tensor 'x'"),
}


@pytest.mark.parametrize(("data", "names"), DAMAGE.values(), ids=DAMAGE)
def test_damaged_safetensors_are_named(tmp_path: Path, data: bytes, names: str) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(data)
    with pytest.raises(InvalidWeights, match=names):
        SafetensorsFile(path)


def test_integers_are_not_weights(tmp_path: Path) -> None:
    save_file({"x": np.arange(4)}, tmp_path / "x.safetensors")
    with pytest.raises(UnsupportedModel, match="I64"):
        SafetensorsFile(tmp_path / "x.safetensors").tensor("x")


def test_no_mutation_of_a_safetensors_header_crashes(tmp_path: Path) -> None:
    write_hf(tmp_path, LLAMA, random_arrays(LLAMA))
    path = tmp_path / "model.safetensors"
    sound = path.read_bytes()
    rng = random.Random(7)
    num_refused = 0
    for _ in range(400):
        damaged = bytearray(sound)
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(rng.choice([16, 1500]))
            damaged[at] = rng.choice([rng.randrange(256), *b'0129"[]{},:-'])
        path.write_bytes(damaged[: rng.choice([len(damaged), rng.randrange(1, len(damaged))])])
        try:
            checkpoint = open_checkpoint(tmp_path)
            for name in checkpoint.names():
                checkpoint.float32(name)
        except ForerunError:
            num_refused += 1
    assert num_refused > 300
