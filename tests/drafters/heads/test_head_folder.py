"""A head's folder: what is refused, and in which words."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forerun.drafters.heads import (
    HEAD_KINDS,
    Eagle3Head,
    HeadConfig,
    HeadFolder,
    MedusaHeads,
    save_head,
)
from forerun.drafters.heads.folder import D2T, HISTORY, pack_head
from forerun.drafters.heads.kinds.eagle3_head import eagle3_shapes
from forerun.engine import LLM
from forerun.errors import DiskFull, ForerunError, InvalidOption, InvalidWeights, UnsupportedModel
from forerun.kernels import ReferenceKernels
from forerun.models.text.compatibility import tokenizer_hash
from tests.drafters.heads.random_heads import (
    CONFIGS,
    eagle3_config,
    medusa_config,
    random_weights,
    write_eagle3,
    write_medusa,
)
from tests.models_llama.tiny import tiny_config
from tests.tiny_model import write_tiny_model

TARGET = tiny_config()
CONFIG = eagle3_config(TARGET)
WEIGHTS = random_weights(CONFIG, eagle3_shapes(CONFIG), 0)


def load(folder: Path) -> Eagle3Head:
    return Eagle3Head.load(HeadFolder(folder, "eagle3"), ReferenceKernels(), None)


def test_what_was_saved_comes_back(tmp_path: Path) -> None:
    write_eagle3(tmp_path / "head", CONFIG)
    folder = HeadFolder(tmp_path / "head", "eagle3")
    assert folder.config == CONFIG
    assert (folder.float32("fc.weight") == WEIGHTS["fc.weight"]).all()
    assert (folder.draft_tokens() == WEIGHTS[D2T] + np.arange(len(WEIGHTS[D2T]))).all()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["head"]


def test_a_packed_head_is_served_the_same_from_fewer_bytes(tmp_path: Path) -> None:
    """Packing on disk equals packing at loading: the same tensors are served."""
    config = replace(CONFIG, target_hidden_size=64, intermediate_size=96)
    write_eagle3(tmp_path / "head", config)
    (tmp_path / "head" / HISTORY).write_text('{"calls": []}')
    folder = HeadFolder(tmp_path / "head")
    pack_head(folder, tmp_path / "packed")
    packed = HeadFolder(tmp_path / "packed")
    assert packed.config == config
    assert set(packed.names()) == set(folder.names())
    packed.check(eagle3_shapes(config))
    for name in set(folder.names()) - {D2T}:
        ours, theirs = folder.tensor(name), packed.tensor(name)
        assert (ours.format, ours.shape) == (theirs.format, theirs.shape)
        assert (ours.data == theirs.data).all()
    assert (packed.draft_tokens() == folder.draft_tokens()).all()
    assert packed.num_weights == folder.num_weights
    assert (tmp_path / "packed" / HISTORY).read_text() == '{"calls": []}'
    sizes = [(each.path / "model.safetensors").stat().st_size for each in (folder, packed)]
    assert sizes[1] < 0.45 * sizes[0]


def test_a_packed_head_is_checked_without_its_floats(tmp_path: Path) -> None:
    config = replace(CONFIG, target_hidden_size=256, intermediate_size=2048)
    write_eagle3(tmp_path / "head", config)
    pack_head(HeadFolder(tmp_path / "head"), tmp_path / "packed")
    folder, shapes = HeadFolder(tmp_path / "packed"), eagle3_shapes(config)
    tracemalloc.start()
    folder.check(shapes)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * max(np.prod(shape) for shape in shapes.values()) / 4
    weights = tmp_path / "packed" / "model.safetensors"
    block = folder.tensor("midlayer.mlp.down_proj.weight").data[5, :34].tobytes()
    infinite = np.float16(np.inf).tobytes() + block[2:]
    weights.write_bytes(weights.read_bytes().replace(block, infinite))
    with pytest.raises(InvalidWeights, match=r"down_proj\.weight' has entries that are not finite"):
        HeadFolder(tmp_path / "packed").check(shapes)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"num_layers": 2}, "its number of layers is 3, and this target's 2"),
        ({"hidden_size": 64}, "its hidden size is 48, and this target's 64"),
        ({"vocab_size": 40}, "its vocabulary size is 32, and this target's 40"),
    ],
)
def test_another_target_is_refused(
    tmp_path: Path, plain: LLM, changes: dict[str, int], said: str
) -> None:
    ours = tokenizer_hash(plain.tokenizer)
    head = write_eagle3(tmp_path / "head", eagle3_config(plain.model.config, ours))
    other = write_tiny_model(tmp_path / "other", **changes)
    with pytest.raises(InvalidOption, match=said):
        LLM(other, speculative_config={"method": "eagle3", "model": str(head)})


def test_another_tokenizer_is_refused(tmp_path: Path, plain: LLM) -> None:
    head = write_eagle3(tmp_path / "head", eagle3_config(plain.model.config, "of another"))
    with pytest.raises(InvalidOption, match="its tokenizer is of another"):
        plain.with_speculation({"method": "eagle3", "model": str(head)})


def test_another_kind_is_refused(tmp_path: Path, plain: LLM) -> None:
    ours = tokenizer_hash(plain.tokenizer)
    head = write_medusa(tmp_path / "head", medusa_config(plain.model.config, ours))
    with pytest.raises(InvalidOption, match='of kind "medusa", and "eagle3" was asked for'):
        plain.with_speculation({"method": "eagle3", "model": str(head)})


def test_no_folder_is_refused(tmp_path: Path, plain: LLM) -> None:
    with pytest.raises(InvalidWeights, match="is no trained head: it must hold"):
        plain.with_speculation({"method": "eagle3", "model": str(tmp_path)})
    with pytest.raises(InvalidOption, match='no head of kind "medusa" comes with the package'):
        plain.with_speculation({"method": "medusa"})


def without_config(folder: Path) -> None:
    (folder / "config.json").unlink()


def truncated(folder: Path) -> None:
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data[:-100])


def edited(**changes: Any) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        values = json.loads((folder / "config.json").read_text())
        values |= changes
        kept = {name: value for name, value in values.items() if value is not None}
        (folder / "config.json").write_text(json.dumps(kept))

    return edit


def weights(**changes: Any) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        whole: dict[str, Any] = {**WEIGHTS, **{k.replace("__", "."): v for k, v in changes.items()}}
        save_head(folder, CONFIG, {name: w for name, w in whole.items() if w is not None})

    return edit


BROKEN: dict[str, tuple[Callable[[Path], None], type[ForerunError], str]] = {
    "no config": (without_config, InvalidWeights, "is no trained head"),
    "truncated": (truncated, InvalidWeights, "ends at byte"),
    "not ours": (edited(format="x"), UnsupportedModel, "is no head of Forerun's"),
    "no layers": (edited(layers=None), InvalidWeights, "'layers' is missing"),
    "layers off": (
        edited(layers=[0, 2, 4]),
        InvalidWeights,
        r"are \[0, 2, 4\], and its target has 3",
    ),
    "layers twice": (edited(layers=[1, 1, 2]), InvalidWeights, "do not ascend"),
    "two layers": (edited(layers=[1, 2]), InvalidWeights, "'fc.weight' has shape"),
    "layers below": (edited(layers=[-1, 1, 2]), InvalidWeights, "do not ascend from 0"),
    "a flag": (edited(fc_norm=1), InvalidWeights, "'fc_norm' must be true or false, not 1"),
    "no number": (edited(rope_theta="x"), InvalidWeights, "'rope_theta' must be a number"),
    "below 0": (edited(rms_norm_eps=-1), InvalidWeights, "must be a number above 0, not -1"),
    "a size": (edited(max_len=-1), InvalidWeights, "'max_len' must be a whole number ≥ 0"),
    "a hash": (edited(tokenizer_hash=5), InvalidWeights, "'tokenizer_hash' must be a string"),
    "a word": (
        edited(num_heads="4"),
        InvalidWeights,
        "'num_heads' must be a whole number ≥ 0, not '4'",
    ),
    "no heads": (edited(num_heads=0), InvalidWeights, "fit no head of kind eagle3"),
    "too many words": (edited(draft_vocab_size=98), InvalidWeights, "fit no head"),
    "NaN": (
        weights(norm__weight=np.full(48, np.nan, np.float32)),
        InvalidWeights,
        "'norm.weight' has entries that are not finite",
    ),
    "missing": (weights(fc__weight=None), InvalidWeights, "tensor 'fc.weight' is missing"),
    "extra": (
        weights(extra=np.ones(3, np.float32)),
        UnsupportedModel,
        "'extra' has no place in a head",
    ),
    "map": (
        weights(d2t=np.full(95, 7, np.int64) * 90),
        InvalidWeights,
        "does not map the draft vocabulary",
    ),
    "map of floats": (
        weights(d2t=np.zeros(95, np.float32)),
        InvalidWeights,
        "is no vector of 64-bit integers",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_folder_is_refused_in_one_sentence(tmp_path: Path, name: str) -> None:
    breaks, error, said = BROKEN[name]
    folder = write_eagle3(tmp_path / "head", CONFIG)
    breaks(folder)
    with pytest.raises(error, match=said) as raised:
        load(folder)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("kind", HEAD_KINDS)
def test_every_kind_refuses_what_it_cannot_use(tmp_path: Path, plain: LLM, kind: str) -> None:
    ours = tokenizer_hash(plain.tokenizer)
    config = CONFIGS[kind](plain.model.config, ours)
    speculation = {"method": kind, "model": str(tmp_path / "head")}
    weights = random_weights(config, HEAD_KINDS[kind].shapes(config), 0)
    for name in (min(weights), max(set(weights) - {D2T})):
        save_head(tmp_path / "head", config, {k: v for k, v in weights.items() if k != name})
        with pytest.raises(InvalidWeights, match=f"{name}' is missing"):
            plain.with_speculation(speculation)
        if name != D2T:
            save_head(tmp_path / "head", config, {**weights, name: weights[name] * np.nan})
            with pytest.raises(InvalidWeights, match=f"{name}' has entries that are not finite"):
                plain.with_speculation(speculation)
    save_head(tmp_path / "head", config, weights)
    plain.with_speculation(speculation)
    truncated(tmp_path / "head")
    with pytest.raises(InvalidWeights, match="ends at byte"):
        plain.with_speculation(speculation)
    save_head(tmp_path / "head", replace(config, target_vocab_size=999), weights)
    with pytest.raises(InvalidOption, match="its vocabulary size is 999, and this target's 32"):
        plain.with_speculation(speculation)


@pytest.mark.parametrize(
    ("kind", "changes", "said"),
    [
        ("blockwise", {"layers": (2,)}, "blockwise needs 1 or more guesses and the target's last"),
        ("mtp", {"layers": (2,)}, "mtp needs the target's last layer; it has layers"),
        ("mtp", {"head_dim": 7}, "fit no head of kind mtp"),
        ("pass", {"num_guesses": 1}, "pass needs 2 or more guesses, of all 32 ids"),
        ("pass", {"draft_vocab_size": 9}, "pass needs 2 or more guesses, of all 32 ids"),
        ("distilled", {"num_kv_heads": 3}, "4 heads and 3 key/value heads do not divide"),
    ],
)
def test_sizes_that_fit_no_head_are_refused(
    tmp_path: Path, plain: LLM, kind: str, changes: dict[str, Any], said: str
) -> None:
    sound = CONFIGS[kind](plain.model.config, tokenizer_hash(plain.tokenizer))
    weights = random_weights(sound, HEAD_KINDS[kind].shapes(sound), 0)
    save_head(tmp_path / "head", replace(sound, **changes), weights)
    with pytest.raises(InvalidWeights, match=said):
        plain.with_speculation({"method": kind, "model": str(tmp_path / "head")})


def test_medusa_needs_the_last_layer(tmp_path: Path) -> None:
    wrong = replace(medusa_config(TARGET), layers=(2,))
    folder = HeadFolder(write_medusa(tmp_path / "head", wrong), "medusa")
    with pytest.raises(InvalidWeights, match=r"the target's last layer; it has 4 guesses"):
        MedusaHeads(folder, ReferenceKernels())


def test_a_save_that_fails_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_eagle3(tmp_path / "head", CONFIG)
    before = (folder / "model.safetensors").read_bytes()
    write_bytes, num_written = Path.write_bytes, 0

    def full(path: Path, data: bytes) -> int:
        nonlocal num_written
        num_written += 1
        if num_written > 1:
            raise OSError(28, "No space left on device")
        return write_bytes(path, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(DiskFull, match="free some space"):
        write_eagle3(folder, CONFIG, seed=1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["head"]
    assert (folder / "model.safetensors").read_bytes() == before
    load(folder)


def test_what_was_written_half_never_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If it is killed while it writes, the folder does not have its name yet."""
    monkeypatch.setattr(Path, "rename", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        write_eagle3(tmp_path / "head", CONFIG)
    with pytest.raises(InvalidWeights, match="is no trained head"):
        HeadFolder(tmp_path / "head", "eagle3")


def test_a_config_has_no_field_that_is_not_read(tmp_path: Path) -> None:
    changed = replace(CONFIG, fc_norm=False, norm_output=True, rope_theta=5e5, max_len=77)
    save_head(tmp_path / "head", changed, WEIGHTS)
    assert HeadFolder(tmp_path / "head", "eagle3").config == changed
    assert isinstance(changed, HeadConfig)


@pytest.mark.parametrize("name", ["thesis.txt", "src"])
def test_only_a_head_is_replaced(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir() if name == "src" else (tmp_path / name).write_text("years of work")
    with pytest.raises(InvalidOption, match="other things than a head"):
        save_head(tmp_path, CONFIG, WEIGHTS)
    assert (tmp_path / name).exists()
    with pytest.raises(InvalidOption, match="other things than a head"):
        save_head(Path(__file__), CONFIG, WEIGHTS)


def test_weights_of_medusa_without_a_config_are_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "medusa_lm_head.safetensors").write_text("years of work")
    with pytest.raises(InvalidOption, match="other things than a head"):
        save_head(tmp_path, CONFIG, WEIGHTS)


def test_a_map_of_another_length_is_refused_by_itself(tmp_path: Path) -> None:
    save_head(tmp_path / "head", CONFIG, {**WEIGHTS, D2T: np.zeros(7, np.int64)})
    with pytest.raises(InvalidWeights, match="'d2t' does not map the draft vocabulary"):
        HeadFolder(tmp_path / "head").draft_tokens()


def test_a_stop_between_two_names_loses_no_head(tmp_path: Path) -> None:
    folder = tmp_path / "head"
    save_head(folder, CONFIG, WEIGHTS)
    before = (folder / "model.safetensors").read_bytes()
    folder.rename(tmp_path / ".head.old")  # as a kill would leave it
    with pytest.raises(InvalidOption):
        save_head(folder, CONFIG, WEIGHTS, {"no/folder": b""})
    assert (folder / "model.safetensors").read_bytes() == before
