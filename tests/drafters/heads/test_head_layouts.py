"""EAGLE-3 heads in the layouts of other engines: exported, and loaded again."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from safetensors.numpy import load_file
from typer.testing import CliRunner

from forerun.cli import app
from forerun.drafters.heads import Card, Eagle3Head, HeadFolder, export_head, save_head
from forerun.drafters.heads.folder import pack_head
from forerun.drafters.heads.kinds.eagle3_head import eagle3_shapes
from forerun.engine import LLM
from forerun.errors import ForerunError, InvalidOption, InvalidWeights
from forerun.kernels import Plan, ReferenceKernels
from forerun.models.config import ModelConfig
from forerun.models.llama import LlamaModel
from forerun.models.text.compatibility import tokenizer_hash
from forerun.speculation.heads.card_check import CardCheck
from forerun.types import SamplingParams
from tests.drafters.heads.naive_heads import NaiveEagle3
from tests.drafters.heads.random_heads import (
    block_config,
    eagle3_config,
    random_weights,
    write_block,
    write_eagle3,
)
from tests.engine.test_bits import params
from tests.models_llama.runs import all_wanted
from tests.models_llama.tiny import TinyCheckpoint, tiny_config

# What vllm/model_executor/models/llama_eagle3.py loads (`layers.0.` and `midlayer.` both;
# `d2t` as draft_id_to_target_id), and sglang/srt/models/llama_eagle3.py (`midlayer.`; `t2d` is
# skipped there). The embedding is the target's where the file has none.
LAYER = {
    "input_layernorm",
    "hidden_norm",
    "post_attention_layernorm",
    *(f"self_attn.{part}_proj" for part in "qkvo"),
    *(f"mlp.{part}_proj" for part in ("gate", "up", "down")),
}
REST = {"fc.weight", "norm.weight", "lm_head.weight", "d2t", "t2d"}
NAMES = {
    "speculators": {f"layers.0.{name}.weight" for name in LAYER} | REST,
    "eagle": {f"midlayer.{name}.weight" for name in LAYER} | REST,
}
# `if idx in self.aux_hidden_state_layers` comes before layer idx runs in vLLM; SGLang's
# `set_eagle3_layers_to_capture` adds 1 to what the config of a head says.
IDS = "eagle_aux_hidden_state_layer_ids"
LAYER_IDS = {"speculators": [1, 2, 3], "eagle": [0, 1, 2]}
TARGET = tiny_config()
WIDE = tiny_config(hidden_size=64)  # its rows can be packed
FEATURES = np.random.default_rng(1).standard_normal((9, 3 * 64)).astype(np.float32)
PLAIN: dict[str, Any] = {"fc_norm": False, "layers": (1, 2, 3)}


@pytest.fixture(params=["speculators", "eagle"])
def layout(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def exported(tmp_path: Path, layout: str, **changes: Any) -> Path:
    head = write_eagle3(tmp_path / "head", eagle3_config(TARGET, **{**PLAIN, **changes}))
    export_head(HeadFolder(head, "eagle3"), tmp_path / "out", layout, "org/name")
    return tmp_path / "out"


def test_names_and_keys_are_those_that_the_engines_read(tmp_path: Path, layout: str) -> None:
    out = exported(tmp_path, layout)
    weights = load_file(out / "model.safetensors")
    assert set(weights) == NAMES[layout]
    assert weights["t2d"].dtype == np.bool_
    ids = weights["d2t"] + np.arange(95)
    assert np.flatnonzero(weights["t2d"]).tolist() == ids.tolist()
    values = json.loads((out / "config.json").read_text())
    shape = values["transformer_layer_config"] if layout == "speculators" else values
    assert (shape["num_hidden_layers"], shape["hidden_size"], shape["vocab_size"]) == (1, 48, 97)
    assert values["draft_vocab_size"] == 95
    named = values if layout == "speculators" else values["eagle_config"]
    assert named[IDS] == LAYER_IDS[layout]
    if layout == "speculators":
        assert values["speculators_model_type"] == "eagle3"
        assert values["speculators_config"]["verifier"]["name_or_path"] == "org/name"
    else:
        assert values["architectures"] == ["LlamaForCausalLMEagle3"]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, "packed"])
def test_what_was_exported_says_the_same(tmp_path: Path, layout: str, dtype: Any) -> None:
    """Bit by bit: what half precision cannot hold, such as a norm, is written in single."""
    config = eagle3_config(WIDE, **PLAIN, intermediate_size=96)
    drawn = random_weights(config, eagle3_shapes(config), 0)
    half = np.float16 if dtype == "packed" else dtype
    matrices = {name: w.astype(half) for name, w in drawn.items() if w.ndim > 1}
    save_head(tmp_path / "head", config, {**drawn, **matrices})
    used = tmp_path / "head"
    if dtype == "packed":
        pack_head(HeadFolder(used), tmp_path / "packed")
        used = tmp_path / "packed"
    export_head(HeadFolder(used), tmp_path / "out", layout, "org/name")
    stored = load_file(tmp_path / "out" / "model.safetensors")
    assert stored["norm.weight"].dtype == np.float32
    assert stored["fc.weight"].dtype == (np.float32 if dtype == "packed" else dtype)
    ours, theirs = logits(used), logits(tmp_path / "out")
    assert (ours == theirs).all()
    assert np.ptp(ours) > 1


@pytest.mark.parametrize("norms_first", [False, True])
def test_others_read_the_same_from_what_was_exported(
    tmp_path: Path, layout: str, norms_first: bool
) -> None:
    """Compared with a second implementation of the engines' names, keys and arithmetic."""
    if layout == "eagle" and norms_first:
        with pytest.raises(InvalidOption, match="export as speculators"):
            exported(tmp_path, layout, norm_before_residual=True)
        return
    out = exported(tmp_path, layout, norm_before_residual=norms_first, rope_theta=5e4)
    table = TinyCheckpoint(TARGET).float32("model.embed_tokens.weight").astype(np.float64)
    features = FEATURES[:, : 3 * TARGET.hidden_size].astype(np.float64)
    expected = NaiveEagle3(out).logits(features, table[:9])
    found = logits(tmp_path / "head", TARGET)
    assert (np.isfinite(expected).sum(1) == found.shape[1]).all()
    np.testing.assert_allclose(found, expected[np.isfinite(expected)].reshape(9, -1), atol=1e-4)


def logits(path: Path, target: ModelConfig = WIDE) -> npt.NDArray[np.float32]:
    """Over `FEATURES` and the first tokens: [9, draft V]"""
    model = LlamaModel.load(TinyCheckpoint(target), ReferenceKernels())
    folder = HeadFolder(path, "eagle3")
    assert folder.config.layers == (1, 2, 3)
    head = Eagle3Head.load(folder, ReferenceKernels(), model.embedding)
    cache = head.new_cache(8, 4)
    table = cache.new_table()
    span = all_wanted(table.reserve(9), tuple(range(9)))
    features = FEATURES[:, : 3 * target.hidden_size]
    return head.known(Plan.build([(span, table)]), cache, features)[0]


def test_another_engines_head_is_served(tmp_path: Path, plain: LLM, layout: str) -> None:
    config = eagle3_config(plain.model.config, tokenizer_hash(plain.tokenizer), **PLAIN)
    head = write_eagle3(tmp_path / "head", config)
    export_head(HeadFolder(head, "eagle3"), tmp_path / "out", layout, "")
    options = {"method": "eagle3", "model": str(tmp_path / "out"), "adaptive": False}
    output = plain.with_speculation(options).generate("abcabc", params("top_p"))[0].outputs[0]
    expected = plain.generate("abcabc", params("top_p"))[0].outputs[0]
    assert output.token_ids == expected.token_ids
    assert output.stats["draft_tokens"] > 10


MISSING = object()


def edited(path: Path, changes: dict[str, Any]) -> Path:
    """Change values of a head's config: `layer.` names are of the decoder layer, `eagle.` names and
    the layer ids of the object that holds these ids, and other names are top-level keys."""
    values = json.loads((path / "config.json").read_text())
    parts = {
        "layer": values.get("transformer_layer_config", values),
        "eagle": values.get("eagle_config", values),
        "": values,
    }
    for key, value in changes.items():
        place, _, name = key.rpartition(".")
        place = "eagle" if name == IDS else place
        if value is MISSING:
            del parts[place][name]
        else:
            parts[place][name] = value
    (path / "config.json").write_text(json.dumps(values))
    return path


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({IDS: MISSING}, f"{IDS}' is missing.*usually .*of the target's L layers"),
        ({IDS: []}, f"{IDS}' must be a list of whole numbers"),
        ({IDS: [True, 1, 2]}, f"{IDS}' must be a list of whole numbers, not .True, 1, 2."),
        ({IDS: ["1", 2, 3]}, f"{IDS}' must be a list of whole numbers"),
        ({IDS: [1]}, "'fc.weight' has shape"),
        ({IDS: [2, 1, 0]}, f"{IDS}' are .2, 1, 0., which do not ascend"),
        ({IDS: [1, 1, 1]}, "do not ascend"),
        ({IDS: [-1, 0, 1]}, "do not ascend from 0 or more"),
        ({"layer.rope_scaling": {"factor": 2}}, "'rope_scaling' with factor='2' is not supported"),
        ({"layer.rope_parameters": {"rope_type": "llama3", "factor": 8}}, "rope_type='llama3'"),
        ({"layer.rope_parameters": {"rope_type": "yarn"}}, "'rope_parameters' with .*'yarn'"),
        ({"layer.rope_parameters": {"partial_rotary_factor": 0.5}}, "plain rotary frequencies"),
        ({"layer.rope_parameters": 5}, "'rope_parameters' must be an object, not 5"),
        ({"layer.rope_theta": "abc"}, "'rope_theta' must be a number, not 'abc'"),
        ({"layer.rms_norm_eps": "x"}, "'rms_norm_eps' must be a number, not 'x'"),
        ({"layer.rms_norm_eps": 0}, "'rms_norm_eps' must be a number above 0"),
        ({"layer.num_key_value_heads": "2"}, "'num_key_value_heads' must be a whole number"),
        ({"layer.num_key_value_heads": 3}, "fit no head of kind eagle3"),
        ({"layer.head_dim": 7}, "fit no head of kind eagle3"),
        ({"layer.hidden_size": "48"}, "'hidden_size' must be a whole number ≥ 1, not '48'"),
        ({"layer.vocab_size": MISSING}, "'vocab_size' is missing"),
        ({"layer.intermediate_size": 41}, "has shape"),
        ({"layer.hidden_act": "gelu"}, "'hidden_act' is 'gelu', and only 'silu' is supported"),
        ({"layer.model_type": "qwen3"}, "'model_type' is 'qwen3'"),
        ({"layer.attention_bias": True}, "'attention_bias' is 'True'"),
        ({"layer.logit_scale": 0.5}, "'logit_scale' is '0.5'"),
        ({"layer.num_hidden_layers": 2}, "only heads of one layer as wide as the target"),
        ({"target_hidden_size": 64}, "only heads of one layer as wide as the target"),
        ({"draft_vocab_size": "9"}, "'draft_vocab_size' must be a whole number"),
        ({"draft_vocab_size": 98}, "'draft_vocab_size' must be at most 97"),
        ({"norm_before_residual": "yes"}, "'norm_before_residual' must be true or false"),
        ({"norm_before_fc": True}, "'norm_before_fc' is 'True'"),
        ({"fc_norm": True}, "'fc_norm' is 'True'"),
        ({"norm_output": True}, "'norm_output' is 'True'"),
        ({"eagle.use_mtp_layernorm": True}, "'use_mtp_layernorm' is 'True'"),
        ({"eagle.use_aux_hidden_state": False}, "'use_aux_hidden_state' is 'False'"),
        ({"quantization_config": {"bits": 4}}, "'quantization_config' is"),
    ],
)
def test_what_we_cannot_run_is_refused(
    tmp_path: Path, layout: str, changes: dict[str, Any], said: str
) -> None:
    out = edited(exported(tmp_path, layout), changes)
    with pytest.raises(ForerunError, match=said) as raised:
        Eagle3Head.load(HeadFolder(out, "eagle3"), ReferenceKernels(), None)
    assert "\n" not in str(raised.value)
    assert "; " in str(raised.value)  # what to do


def test_what_the_engines_read_differently_is_refused(tmp_path: Path, layout: str) -> None:
    out = exported(tmp_path, layout)
    if layout == "speculators":
        edited(out, {"norm_before_residual": MISSING})
        said = "'norm_before_residual' is missing; vLLM takes true for it and speculators false"
    else:
        edited(out, {"norm_before_residual": True})
        said = "'norm_before_residual' is not known to this layout"
    with pytest.raises(ForerunError, match=said):
        HeadFolder(out)
    if layout == "eagle":  # vLLM reads ids there, in its own numbers
        values = json.loads((out / "config.json").read_text())
        values[IDS] = values["eagle_config"].pop(IDS)
        (out / "config.json").write_text(json.dumps(values))
        with pytest.raises(ForerunError, match="is missing where SGLang reads it"):
            HeadFolder(out)


@pytest.mark.parametrize("num_layers", [7, 12, 30, 36, 61])
def test_ids_in_another_engines_numbers_are_refused(
    tmp_path: Path, layout: str, num_layers: int
) -> None:
    """By default vLLM and SGLang take layers 2, L // 2 and L − 3, which SpecForge numbers 1,
    L // 2 − 1 and L − 4: the ids of either are one off in the other's layout."""
    usual = [2, num_layers // 2, num_layers - 3]
    own = {"speculators": usual, "eagle": [layer - 1 for layer in usual]}[layout]
    config = eagle3_config(TARGET, **{**PLAIN, "target_num_layers": num_layers})
    target = {
        name: getattr(config, name)
        for name in ("target_hidden_size", "target_vocab_size", "target_num_layers")
    } | {"tokenizer_hash": "of ours"}
    out = exported(tmp_path, layout)
    for step in (-1, 1):
        wrong = [layer + step for layer in own]
        folder = HeadFolder(edited(out, {IDS: wrong}))
        with pytest.raises(InvalidWeights, match=f"one off .*; write in .{own[0]}, {own[1]}, "):
            folder.fit(**target)
    folder = HeadFolder(edited(out, {IDS: own}))
    folder.fit(**target)
    assert folder.config.layers == tuple(usual)
    assert folder.config.target_num_layers == num_layers
    HeadFolder(edited(out, {IDS: [*own[:2], own[2] + 1]})).fit(**target)


def test_a_head_that_looks_at_other_layers_is_found_out(
    tmp_path: Path, plain: LLM, layout: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its config does not tell and it has no card; its random weights are rarely right."""
    config = eagle3_config(plain.model.config, tokenizer_hash(plain.tokenizer), **PLAIN)
    head = write_eagle3(tmp_path / "head", config)
    export_head(HeadFolder(head, "eagle3"), tmp_path / "out", layout, "")
    options = {"method": "eagle3", "model": str(tmp_path / "out"), "adaptive": False}
    asked = SamplingParams(temperature=0, max_tokens=100, ignore_eos=True)
    llm = plain.with_speculation(options)
    with caplog.at_level(logging.WARNING, "forerun"):
        llm.generate(["abc", "xyz", "hello"], asked)
    (message,) = [m for m in caplog.messages if "put aside" in m]
    assert "eagle3 is put aside: of its first" in message
    assert "any head for this target should reach 15%" in message
    assert "are its layer ids one off?" in message
    assert llm.metrics()["left_out"]["eagle3"] in message


@pytest.mark.parametrize(("every", "is_found_out"), [(4, False), (10, True), (25, True)])
def test_how_often_any_head_is_right(every: int, is_found_out: bool) -> None:
    """Our kinds reach 1/4 after seconds of training; 1/10 and 1/25 were seen one layer off."""
    check = CardCheck({"eagle3": Card(())})
    said = [check.observe("eagle3", is_accepted=idx % every == 0) for idx in range(2000)]
    assert any(said) == is_found_out


def test_layers_that_the_target_lacks_are_refused(tmp_path: Path, plain: LLM, layout: str) -> None:
    config = eagle3_config(plain.model.config, **PLAIN)
    head = write_eagle3(tmp_path / "head", config)
    export_head(HeadFolder(head, "eagle3"), tmp_path / "out", layout, "")
    edited(tmp_path / "out", {IDS: [1, 2, 4]})
    with pytest.raises(InvalidOption, match="the target has 3 layers"):
        plain.with_speculation({"method": "eagle3", "model": str(tmp_path / "out")})


def test_only_plain_eagle3_is_exported(tmp_path: Path, layout: str) -> None:
    with pytest.raises(InvalidOption, match="train with --exportable"):
        exported(tmp_path, layout, norm_output=True)
    block = write_block(tmp_path / "block", block_config(TARGET))
    with pytest.raises(InvalidOption, match=r'of kind "block" has no place .*--format packed'):
        export_head(HeadFolder(block), tmp_path / "out", layout, "")
    if layout == "eagle":
        with pytest.raises(InvalidOption, match="export as speculators"):
            exported(tmp_path, layout, layers=(0, 1, 2))


def test_what_names_no_target_is_not_packed(tmp_path: Path, layout: str) -> None:
    with pytest.raises(InvalidOption, match=r"another engine's head.*train on it once"):
        pack_head(HeadFolder(exported(tmp_path, layout)), tmp_path / "packed")


def test_the_command_line_exports(tmp_path: Path) -> None:
    head = write_eagle3(tmp_path / "head", eagle3_config(TARGET, **PLAIN))
    out = tmp_path / "out"
    done = CliRunner().invoke(app, ["drafter", "export", str(head), "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert (out / "config.json").is_file()
    failed = CliRunner().invoke(
        app, ["drafter", "export", str(head), "--out", str(out), "--format", "eagel"]
    )
    assert failed.exit_code != 0
    assert "did you mean 'eagle'" in failed.output
