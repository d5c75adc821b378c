"""Medusa heads in the layouts of its own repository, of vLLM, and of text-generation-inference."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from safetensors.numpy import save_file

from forerun.drafters.heads import HeadFolder, MedusaHeads
from forerun.engine import LLM
from forerun.errors import ForerunError
from forerun.kernels import ReferenceKernels
from forerun.models.llama import LlamaModel
from tests.drafters.heads.naive_heads import naive_medusa
from tests.engine.test_bits import params
from tests.models_llama.tiny import TinyCheckpoint, tiny_config

TARGET = tiny_config()
NUM, SIZE, VOCAB = 3, TARGET.hidden_size, TARGET.vocab_size
TO_FIT: dict[str, Any] = {
    "target_hidden_size": SIZE,
    "target_vocab_size": VOCAB,
    "target_num_layers": TARGET.num_layers,
    "tokenizer_hash": "",
}
# What `medusa_head.state_dict()` of FasterDecoding/Medusa (medusa/model/medusa_model.py) holds, in
# medusa_lm_head.safetensors beside `MedusaConfig`'s keys; InternLM/lmdeploy#1180 lists the names.
OWN_CONFIG = {"medusa_num_heads": NUM, "medusa_num_layers": 1, "base_model_name_or_path": "x/y"}
OWN_NAMES = {f"{i}.{part}" for i in range(NUM) for part in ("0.linear.weight", "0.linear.bias")}
OWN_NAMES |= {f"{i}.1.weight" for i in range(NUM)}
# What `Medusa.load_weights` of vllm/model_executor/models/medusa.py takes, and `MedusaConfig` of
# vllm/transformers_utils/configs/medusa.py.
VLLM_CONFIG = {
    "architectures": ["MedusaModel"],
    "model_type": "medusa",
    "hidden_size": SIZE,
    "vocab_size": VOCAB,
    "num_heads": NUM,
    "num_hidden_layers": 1,
    "truncated_vocab_size": None,
    "original_lm_head": False,
    "medusa_fc_bias": True,
}
VLLM_NAMES = {
    "0.linear.weight": "blocks.{}.layers.0.weight",
    "0.linear.bias": "blocks.{}.layers.0.bias",
    "1.weight": "lm_heads.{}.weight",
}


def drawn(size: int = SIZE, vocab_size: int = VOCAB) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    shapes = {"0.linear.weight": (size, size), "0.linear.bias": (size,)}
    shapes["1.weight"] = (vocab_size, size)
    return {
        f"{idx}.{part}": (rng.standard_normal(shape) / np.sqrt(size)).astype(np.float32)
        for idx in range(NUM)
        for part, shape in shapes.items()
    }


def in_vllm(weights: dict[str, Any]) -> dict[str, Any]:
    renamed = {}
    for name, weight in weights.items():
        idx, part = name.split(".", 1)
        renamed["medusa_heads." * (idx == "1") + VLLM_NAMES[part].format(idx)] = weight
    return renamed


def written(
    folder: Path, config: dict[str, Any], weights: dict[str, Any], file: str = "model.safetensors"
) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(weights, folder / file)
    return folder


def as_medusa(folder: Path, weights: dict[str, Any]) -> Path:
    assert set(weights) == OWN_NAMES
    return written(folder, OWN_CONFIG, weights, "medusa_lm_head.safetensors")


def guesses(folder: Path) -> tuple[npt.NDArray[np.float32], Any]:
    """The heads' logits [guesses, 5, draft V], and their input: the target's normed states."""
    model = LlamaModel.load(TinyCheckpoint(TARGET), ReferenceKernels())
    opened = HeadFolder(folder, "medusa")
    opened.fit(**TO_FIT)
    heads = MedusaHeads(opened, ReferenceKernels(), model)
    hidden = np.random.default_rng(2).standard_normal((5, SIZE)).astype(np.float32)
    scale = np.sqrt((hidden.astype(np.float64) ** 2).mean(-1, keepdims=True) + TARGET.rms_norm_eps)
    weight = TinyCheckpoint(TARGET).float32("model.norm.weight")
    return heads.guesses(hidden).transpose(1, 0, 2), hidden / scale * weight


@pytest.mark.parametrize("layout", ["medusa", "vllm"])
def test_their_heads_say_what_they_said_there(tmp_path: Path, layout: str) -> None:
    weights = drawn()
    if layout == "medusa":
        as_medusa(tmp_path, weights)
    else:
        written(tmp_path, VLLM_CONFIG, in_vllm(weights))
    found, normed = guesses(tmp_path)
    np.testing.assert_allclose(found, naive_medusa(weights, normed), atol=1e-5)


def test_without_biases_with_one_matrix_and_a_map_of_ids(tmp_path: Path) -> None:
    """`original_lm_head`, `medusa_fc_bias` false and `token_map` of vLLM."""
    tokens = np.arange(5, 91, 2)
    bare = {name: w for name, w in drawn().items() if "linear.weight" in name}
    matrix = drawn()["0.1.weight"][tokens]
    config = {**VLLM_CONFIG, "original_lm_head": True, "medusa_fc_bias": False}
    config["truncated_vocab_size"] = len(tokens)
    shared = {"lm_heads.0.weight": matrix, "token_map": tokens}
    written(tmp_path, config, {**in_vllm(bare), **shared})
    found, normed = guesses(tmp_path)
    whole = {name.replace("weight", "bias"): np.zeros(SIZE) for name in bare}
    whole |= bare | {f"{idx}.1.weight": matrix for idx in range(NUM)}
    np.testing.assert_allclose(found, naive_medusa(whole, normed), atol=1e-5)
    assert HeadFolder(tmp_path).draft_tokens().tolist() == tokens.tolist()


def test_version_2_ends_in_the_targets_own_matrix(tmp_path: Path) -> None:
    """`MedusaHeadV2` of huggingface/text-generation-inference."""
    bare = {name: w for name, w in drawn().items() if "linear" in name}
    written(tmp_path, {**OWN_CONFIG, "version": "2"}, bare, "medusa_lm_head.safetensors")
    found, normed = guesses(tmp_path)
    head = TinyCheckpoint(TARGET).float32("lm_head.weight")
    whole = bare | {f"{idx}.1.weight": head for idx in range(NUM)}
    np.testing.assert_allclose(found, naive_medusa(whole, normed), atol=1e-5)


@pytest.mark.parametrize("layout", ["medusa", "vllm", "version 2"])
@pytest.mark.parametrize("num_branches", [1, 3])
def test_their_heads_are_served(tmp_path: Path, plain: LLM, layout: str, num_branches: int) -> None:
    config = plain.model.config
    weights = drawn(config.hidden_size, config.vocab_size)
    if layout == "medusa":
        as_medusa(tmp_path, weights)
    elif layout == "vllm":
        sizes = {"hidden_size": config.hidden_size, "vocab_size": config.vocab_size}
        written(tmp_path, {**VLLM_CONFIG, **sizes}, in_vllm(weights))
    else:
        bare = {name: w for name, w in weights.items() if "linear" in name}
        written(tmp_path, {**OWN_CONFIG, "version": "2"}, bare)
    options = {"method": "medusa", "model": str(tmp_path), "adaptive": False}
    llm = plain.with_speculation({**options, "num_branches": num_branches})
    output = llm.generate("abcabc", params("top_p"))[0].outputs[0]
    assert output.token_ids == plain.generate("abcabc", params("top_p"))[0].outputs[0].token_ids
    assert output.stats["draft_tokens"] > 10


def without(*names: str) -> dict[str, Any]:
    return {name: w for name, w in drawn().items() if name not in names}


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "fewer heads": ({"medusa_num_heads": 2}, drawn(), "'medusa_num_heads' is 2, .* has 3 residual"),
    "a word": ({"medusa_num_heads": "3"}, drawn(), "'medusa_num_heads' must be a whole number"),
    "two blocks": ({"medusa_num_layers": 2}, drawn(), "'medusa_num_layers' and .* must be 1"),
    "a scale": ({"logit_scale": 0.5}, drawn(), "'logit_scale' must be 1"),
    "no matrices": ({}, without(*(f"{i}.1.weight" for i in range(3))), "no matrix of head 0"),
    "a matrix missing": ({}, without("2.1.weight"), "'2.1.weight' is missing"),
    "a bias missing": ({}, without("1.0.linear.bias"), "'1.0.linear.bias' is missing"),
    "a bias too many": ({}, without("0.0.linear.bias"), "'1.0.linear.bias' has no place"),
    "another tensor": ({}, drawn() | {"norm.weight": np.ones(3)}, "'norm.weight' has no place"),
    "another width": ({}, drawn(size=40), "its hidden size is 40, and this target's 48"),
    "other ids": ({}, drawn(vocab_size=96), "its vocabulary size is 96, and this target's 97"),
    "a config that lies": ({"hidden_size": 40}, drawn(), "its hidden size is 40"),
    "not finite": (
        {},
        drawn() | {"1.1.weight": np.full((VOCAB, SIZE), np.nan, np.float32)},
        "'1.1.weight' has entries that are not finite",
    ),
    "an unsorted map": (
        {"truncated_vocab_size": 3},
        drawn(vocab_size=3) | {"token_map": np.array([5, 3, 9])},
        "'token_map' does not map the draft vocabulary to ascending ids",
    ),
    "under two names": (
        {},
        drawn() | {"lm_heads.0.weight": drawn()["0.1.weight"]},
        "is there under another name, too",
    ),
    "a map without matrices": (
        {"version": "2"},
        without(*(f"{i}.1.weight" for i in range(3))) | {"token_map": np.arange(3)},
        "'d2t' has no place",
    ),
    "a number": (
        {},
        drawn() | {"0.0.linear.weight": np.array(1, np.float32)},
        "its hidden size is 1,",
    ),
    "no map": ({"truncated_vocab_size": 3}, drawn(vocab_size=3), "'d2t' is missing"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_we_cannot_run_is_refused(tmp_path: Path, name: str) -> None:
    changes, weights, said = REFUSED[name]
    if "truncated_vocab_size" in changes:
        changes = {**changes, "vocab_size": VOCAB}
    written(tmp_path, OWN_CONFIG | changes, weights)
    with pytest.raises(ForerunError, match=said) as raised:
        guesses(tmp_path)
    assert "\n" not in str(raised.value)
    assert "; " in str(raised.value)


def test_a_pickle_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(OWN_CONFIG))
    (tmp_path / "medusa_lm_head.pt").write_bytes(b"\x80\x02")
    with pytest.raises(ForerunError, match="reading that runs what is written in it; convert it"):
        HeadFolder(tmp_path, "medusa")
