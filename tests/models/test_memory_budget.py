"""Parameters, weights and KV caches against published counts and worked figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from forerun.errors import ForerunError, InvalidOption
from forerun.models.config import ModelConfig
from forerun.models.known_shapes import KNOWN_SHAPES, read_shape, shape_from_config
from forerun.models.memory_budget import (
    MemoryBudget,
    kv_bytes_per_token,
    model_memory,
    num_params,
    weight_bytes,
)

# As the published checkpoints count themselves.
PUBLISHED = {
    "smollm2-135m": 134_515_008,
    "smollm2-360m": 361_821_120,
    "smollm2-1.7b": 1_711_376_384,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-7b": 7_615_616_512,
}

CONFIG = {
    "model_type": "llama",
    "vocab_size": 128256,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "tie_word_embeddings": True,
}


def _num_params(shape: ModelConfig) -> int:
    return sum(num_params(shape))


def test_parameter_counts_of_the_known_shapes() -> None:
    assert {name: _num_params(read_shape(name)) for name in KNOWN_SHAPES} == PUBLISHED


def test_kv_bytes_of_llama_3_2() -> None:
    assert kv_bytes_per_token(read_shape("llama-3.2-1b"), "bfloat16") == 32_768
    assert kv_bytes_per_token(read_shape("llama-3.2-3b"), "bfloat16") == 114_688


def test_budget_of_two_models() -> None:
    """Weights in GB and KV in GiB."""
    budget = MemoryBudget(
        *(
            model_memory(
                read_shape(name),
                dtype="bfloat16",
                kv_dtype="bfloat16",
                num_sequences=8,
                max_len=4096,
            )
            for name in ("llama-3.2-3b", "llama-3.2-1b")
        )
    )
    assert (budget.target.weight_bytes, budget.draft.weight_bytes) == (6_425_499_648, 2_471_628_800)
    assert budget.draft.kv_bytes_per_sequence == 128 * 2**20
    assert budget.target.kv_bytes_per_sequence == 448 * 2**20
    assert (budget.draft.kv_bytes, budget.target.kv_bytes) == (2**30, 3.5 * 2**30)
    assert budget.total_bytes == 6_425_499_648 + 2_471_628_800 + 4.5 * 2**30
    assert budget.total_bytes < 16 * 2**30


def test_the_draft_model_adds_38_percent_of_weights() -> None:
    small, large = (PUBLISHED[name] for name in ("llama-3.2-1b", "llama-3.2-3b"))
    assert round((small + large) / large, 2) == 1.38
    assert round(large / small, 1) == 2.6  # and a pass is 2.6 times cheaper, not 3


def test_untied_embeddings_count_twice() -> None:
    tied = read_shape("llama-3.2-1b")
    untied = shape_from_config({**CONFIG, "tie_word_embeddings": False})
    assert _num_params(untied) - _num_params(tied) == 128256 * 2048


def test_weights_by_dtype() -> None:
    shape = read_shape("smollm2-135m")
    assert weight_bytes(shape, "float32") == 4 * 134_515_008
    assert weight_bytes(shape, "float8") == 134_515_008
    vectors = 576 * 61  # two norms a layer and the last one
    assert weight_bytes(shape, "q4_1") == (134_515_008 - vectors) * 20 // 32 + 4 * vectors


def test_quantised_rows_come_in_blocks() -> None:
    odd = ModelConfig("llama", 100, 48, 96, 2, 3, 1, head_dim=16, max_len=64)
    with pytest.raises(InvalidOption, match="blocks of 32"):
        weight_bytes(odd, "q8_0")


def test_a_shape_is_read_from_a_name_a_file_a_folder_or_json(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    expected = shape_from_config(CONFIG)
    assert read_shape("Llama-3.2-1B") == expected
    assert read_shape(str(tmp_path / "config.json")) == expected
    assert read_shape(str(tmp_path)) == expected
    assert read_shape(json.dumps(CONFIG)) == expected


def test_families_differ_in_small_parameters() -> None:
    sizes = {key: value for key, value in CONFIG.items() if key != "model_type"}
    llama, qwen2, qwen3 = (
        _num_params(shape_from_config({**sizes, "model_type": family, "head_dim": 64}))
        for family in ("llama", "qwen2", "qwen3")
    )
    assert qwen2 - llama == 16 * (32 + 2 * 8) * 64
    assert qwen3 - llama == 16 * 2 * 64


def test_head_dim_and_kv_heads_have_defaults() -> None:
    config = {key: value for key, value in CONFIG.items() if key != "num_key_value_heads"}
    shape = shape_from_config({**config, "head_dim": None})
    assert (shape.num_kv_heads, shape.head_dim) == (32, 64)
    assert shape_from_config({**CONFIG, "head_dim": 128}).head_dim == 128
    qwen3 = {**CONFIG, "model_type": "qwen3", "hidden_size": 1024, "num_attention_heads": 16}
    assert shape_from_config(qwen3).head_dim == 128  # published as such, not 1024 / 16


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("llama-3.2-3", "did you mean 'llama-3.2-3b'"),
        ("/nowhere/config.json", "/nowhere/config.json cannot be read: No such file"),
        ("{", "not valid JSON"),
        ('{"vocab_size": 10}', "'num_attention_heads' is missing"),
        (json.dumps({**CONFIG, "vocab_size": -5}), "vocab_size is -5"),
        (
            json.dumps({**CONFIG, "hidden_size": "big"}),
            "'hidden_size' must be a whole number, not 'big'",
        ),
        (
            json.dumps({**CONFIG, "model_type": "mixtral"}),
            "'mixtral' is not supported; use one of llama, mistral",
        ),
        (json.dumps({**CONFIG, "mlp_bias": True}), "biases"),
        (json.dumps({**CONFIG, "attention_bias": True}), "biases"),
        (
            json.dumps({**CONFIG, "num_key_value_heads": 5}),
            "32 heads and 5 key/value heads do not divide",
        ),
        (
            json.dumps({**CONFIG, "tie_word_embeddings": "yes"}),
            "'tie_word_embeddings' must be true or false",
        ),
    ],
)
def test_a_shape_that_cannot_be_counted_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(ForerunError, match=sentence):
        read_shape(text)


def test_a_list_in_a_file_is_no_shape(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(ForerunError, match="not a JSON object"):
        read_shape(str(tmp_path))


def test_unknown_dtypes_and_bad_sizes_are_refused() -> None:
    shape = read_shape("smollm2-135m")
    with pytest.raises(InvalidOption, match="did you mean 'bfloat16'"):
        weight_bytes(shape, "bfloat")
    with pytest.raises(InvalidOption, match="unknown KV dtype"):
        kv_bytes_per_token(shape, "q8_0")
    for sizes in ({"num_sequences": 0, "max_len": 8}, {"num_sequences": 1, "max_len": -8}):
        with pytest.raises(InvalidOption, match="give a whole number, 1 or more"):
            model_memory(shape, dtype="float32", kv_dtype="float32", **sizes)
