"""EAGLE-3 heads in the layouts of other engines: out, and in again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from typer.testing import CliRunner

from forerun.cli import app
from forerun.drafters.heads import Eagle3Head, HeadFolder, export_head
from forerun.engine import LLM
from forerun.errors import ForerunError, InvalidOption
from forerun.kernels import Plan, ReferenceKernels
from forerun.models.llama import LlamaModel
from forerun.models.text.compatibility import tokenizer_hash
from tests.drafters.heads.random_heads import eagle3_config, write_eagle3
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
LAYER_IDS = {"speculators": [1, 2, 3], "eagle": [0, 1, 2]}
TARGET = tiny_config()
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
    assert named["eagle_aux_hidden_state_layer_ids"] == LAYER_IDS[layout]
    if layout == "speculators":
        assert values["speculators_model_type"] == "eagle3"
        assert values["speculators_config"]["verifier"]["name_or_path"] == "org/name"
    else:
        assert values["architectures"] == ["LlamaForCausalLMEagle3"]


def test_what_was_exported_says_the_same(tmp_path: Path, layout: str) -> None:
    out = exported(tmp_path, layout)
    model = LlamaModel.load(TinyCheckpoint(TARGET), ReferenceKernels())
    features = np.random.default_rng(1).standard_normal((9, 3 * 48)).astype(np.float32)
    found = []
    for path in (tmp_path / "head", out):
        folder = HeadFolder(path, "eagle3")
        assert folder.config.layers == (1, 2, 3)
        head = Eagle3Head.load(folder, ReferenceKernels(), model.embedding)
        cache = head.new_cache(8, 4)
        table = cache.new_table()
        span = all_wanted(table.reserve(9), tuple(range(9)))
        found.append(head.known(Plan.build([(span, table)]), cache, features)[0])
    np.testing.assert_allclose(found[1], found[0], rtol=0.02, atol=0.02)  # in half precision


def test_another_engines_head_is_served(tmp_path: Path, plain: LLM, layout: str) -> None:
    config = eagle3_config(plain.model.config, tokenizer_hash(plain.tokenizer), **PLAIN)
    head = write_eagle3(tmp_path / "head", config)
    export_head(HeadFolder(head, "eagle3"), tmp_path / "out", layout, "")
    options = {"method": "eagle3", "model": str(tmp_path / "out"), "adaptive": False}
    output = plain.with_speculation(options).generate("abcabc", params("top_p"))[0].outputs[0]
    expected = plain.generate("abcabc", params("top_p"))[0].outputs[0]
    assert output.token_ids == expected.token_ids
    assert output.stats["draft_tokens"] > 10


def edit(path: Path, layout: str, **changes: Any) -> None:
    values = json.loads((path / "config.json").read_text())
    inner = {"speculators": "transformer_layer_config", "eagle": "eagle_config"}[layout]
    for name, value in changes.items():
        for part in (values, values[inner]):
            if name in part:
                part[name] = value
    (path / "config.json").write_text(json.dumps(values))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"eagle_aux_hidden_state_layer_ids": None}, "'eagle_aux_hidden_state_layer_ids' is miss"),
        ({"eagle_aux_hidden_state_layer_ids": [1]}, "'fc.weight' has shape"),
        ({"rope_scaling": {"factor": 2}}, "'rope_scaling' is not supported"),
        ({"num_hidden_layers": 2}, "only heads of one layer as wide as the target"),
        ({"target_hidden_size": 64}, "only heads of one layer as wide as the target"),
        ({"hidden_size": "48"}, "'hidden_size' is '48'"),
        ({"intermediate_size": 41}, "has shape"),
    ],
)
def test_what_we_cannot_run_is_refused(
    tmp_path: Path, layout: str, changes: dict[str, Any], said: str
) -> None:
    out = exported(tmp_path, layout)
    edit(out, layout, **changes)
    with pytest.raises(ForerunError, match=said):
        Eagle3Head.load(HeadFolder(out, "eagle3"), ReferenceKernels(), None)


def test_layers_that_the_target_lacks_are_refused(tmp_path: Path, plain: LLM, layout: str) -> None:
    config = eagle3_config(plain.model.config, **PLAIN)
    head = write_eagle3(tmp_path / "head", config)
    export_head(HeadFolder(head, "eagle3"), tmp_path / "out", layout, "")
    edit(tmp_path / "out", layout, eagle_aux_hidden_state_layer_ids=[1, 2, 4])
    with pytest.raises(InvalidOption, match="the target has 3 layers"):
        plain.with_speculation({"method": "eagle3", "model": str(tmp_path / "out")})


def test_only_plain_eagle3_is_exported(tmp_path: Path, layout: str) -> None:
    with pytest.raises(InvalidOption, match="train with --exportable"):
        exported(tmp_path, layout, norm_output=True)
    if layout == "eagle":
        with pytest.raises(InvalidOption, match="export as speculators"):
            exported(tmp_path, layout, layers=(0, 1, 2))


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
