"""A whole training on the CPU: it learns, it goes on, and what it wrote is served."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from typer.testing import CliRunner

from forerun.cli import app
from forerun.cli.heads.train import read_prompts
from forerun.drafters.heads import HEAD_KINDS, HeadFolder, export_head
from forerun.drafters.heads.folder import D2T, HISTORY
from forerun.engine import LLM
from forerun.errors import DiskFull, InvalidOption, InvalidWeights, UnsupportedModel
from forerun.models.opening import load_tokenizer, open_checkpoint
from forerun.models.text.compatibility import check_compatible
from forerun.training.options import HEADS, TrainOptions
from forerun.types import SamplingParams
from tests.tiny_model import write_tiny_model

torch = pytest.importorskip("torch", reason="training needs the extra forerun[train]")
torch.set_num_threads(1)  # small products: threads would only wait for each other

from forerun.training.batches import Rows  # noqa: E402
from forerun.training.learner import Learner  # noqa: E402
from forerun.training.new_head import default_layers, new_config  # noqa: E402
from forerun.training.text_file import load_texts  # noqa: E402
from forerun.training.texts import TextWriter, Turns  # noqa: E402
from forerun.training.torch_heads import torch_head  # noqa: E402
from forerun.training.torch_target import TorchTarget  # noqa: E402
from forerun.training.trainer import Trainer  # noqa: E402

SMALL: dict[str, Any] = {
    "draft_vocab_size": 24,
    "max_len": 48,
    "batch_len": 4,
    "num_written": 48,
    "num_places": 3,
    "tokens": 12_000,
    "learning_rate": 4e-3,
    "device": "cpu",
}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small and sharp, so that there is something to learn."""
    folder = tmp_path_factory.mktemp("models") / "target"
    return write_tiny_model(folder, seed=0, sharpness=4.0, num_layers=2)


def trained(target: Path, **options: Any) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """What was measured before and after training, and the messages."""
    said: list[str] = []
    trainer = Trainer(
        open_checkpoint(target), [], TrainOptions(**{**SMALL, **options}), said.append
    )
    before = trainer.measure()
    return before, trainer.run(), said


@pytest.mark.parametrize(("kind", "loss"), [*((kind, "kl") for kind in HEADS), ("medusa", "tv")])
def test_it_learns_and_what_it_wrote_is_served(
    target: Path, tmp_path: Path, kind: str, loss: str
) -> None:
    """Acceptance in serving is near what training measured: a hidden state or a token that is one
    place off would not show in training, and ruin serving."""
    out = tmp_path / "head"
    is_quick = kind in ("medusa", "blockwise")
    more: dict[str, Any] = {"tokens": 60_000, "learning_rate": 1e-2} if is_quick else {}
    if kind in ("distilled", "pass"):
        more = {"draft_vocab_size": None, "learning_rate": 1e-2}
    before, after, said = trained(target, kind=kind, loss=loss, out=out, **more)
    if kind == "pass":  # its first guess is the target's own
        assert before["alpha"][0] == pytest.approx(1, abs=1e-3)
    else:
        assert after["alpha"][0] > before["alpha"][0] + 0.02, (before, after)
        assert sum(after["alpha"][1:]) > sum(before["alpha"][1:]), (before, after)
    assert any("α" in line for line in said)
    plain = LLM(target, speculative_config=None)
    llm = plain.with_speculation(
        {"method": kind, "model": str(out), "adaptive": False, "num_speculative_tokens": 2}
    )
    prompts, params = questions(target), SamplingParams(temperature=1, max_tokens=24, seed=4)
    pairs = zip(plain.generate(prompts, params), llm.generate(prompts, params), strict=True)
    for expected, found in pairs:
        assert found.outputs[0].token_ids == expected.outputs[0].token_ids
    served = llm.metrics()["drafters"][kind]
    rate = served["accepted_per_position"][0] / served["drafted_per_position"][0]
    assert rate > 0.6 * after["alpha"][0], (served, after)  # coupled noise accepts a little less


def test_look_ahead_tokens_learn(target: Path) -> None:
    """From zeros, not from the usual mean, beyond which a tiny target leaves little to learn."""
    checkpoint = open_checkpoint(target)
    c, model = checkpoint.config, TorchTarget(checkpoint, "cpu", torch.float32)
    texts = TextWriter(model, load_tokenizer(checkpoint), [], 48).write(64, seed=3)
    own: dict[str, Any] = {"target_hidden_size": c.hidden_size, "target_num_layers": c.num_layers}
    own |= {"target_vocab_size": c.vocab_size, "tokenizer_hash": ""}
    config = new_config(TrainOptions(kind="pass", num_places=3), c, **own)
    worst = {"look_ahead.weight": np.zeros((2, c.hidden_size), np.float32)}
    head = torch_head(config, worst, model)
    learner = Learner(model, head, torch.arange(c.vocab_size), 3, "kl")
    rows, chooser = Rows(model, config.layers, 48, 1e9), np.random.default_rng(0)
    rows.add(texts)
    before = learner.sums(texts)
    for _ in range(24):
        learner.step(rows.batch(4, 3, chooser), 5e-2)
    after = learner.sums(texts)
    assert after[0][1] > before[0][1] + 0.05 * before[2][1], (before, after)


def questions(target: Path) -> list[list[int]]:
    """Prompts as those that it was trained on."""
    checkpoint = open_checkpoint(target)
    model = TorchTarget(checkpoint, "cpu", torch.float32)
    texts = TextWriter(model, load_tokenizer(checkpoint), [], 48).write(32, seed=99)
    return [text.tokens[: text.answer] for text in texts]


def test_a_second_call_goes_on_where_the_first_ended(target: Path, tmp_path: Path) -> None:
    out = tmp_path / "head"
    _, first, _ = trained(target, out=out, tokens=8_000)
    vocabulary = HeadFolder(out, "eagle3").draft_tokens().tolist()
    before, _, said = trained(target, out=out, seed=5, tokens=2_000)
    assert any("going on" in line for line in said)
    assert before["alpha"] == pytest.approx(first["alpha"], abs=0.01)  # but for half precision
    assert HeadFolder(out, "eagle3").draft_tokens().tolist() == vocabulary
    calls = json.loads((out / HISTORY).read_text())["calls"]
    assert [call["seed"] for call in calls] == [0, 5]


def test_a_distilled_model_is_an_ordinary_checkpoint(target: Path, tmp_path: Path) -> None:
    """`draft_model` loads its folder, which has the target's tokenizer; it can be trained on."""
    out, small = tmp_path / "small", {"draft_vocab_size": None, "tokens": 1_000}
    trained(target, kind="distilled", out=out, **small)
    ours, theirs = (load_tokenizer(open_checkpoint(folder)) for folder in (target, out))
    check_compatible(ours, theirs)
    messages = [{"role": "user", "content": "the cat, a dog.\n"}]
    assert theirs.encode_chat(messages) == ours.encode_chat(messages)
    plain = LLM(target, speculative_config=None)
    asked, texts = SamplingParams(temperature=0, max_tokens=16), []
    for method in ("draft_model", "distilled"):
        llm = plain.with_speculation({"method": method, "model": str(out), "adaptive": False})
        output = llm.generate("abcabc", asked)[0].outputs[0]
        assert output.stats["draft_tokens"] > 10
        texts.append(output.token_ids)
    assert texts == [plain.generate("abcabc", asked)[0].outputs[0].token_ids] * 2
    _, _, said = trained(target, kind="distilled", out=out, **small)
    assert any("going on" in line for line in said)
    with pytest.raises(InvalidOption, match="guesses all ids: leave draft_vocab_size out"):
        trained(target, kind="pass", out=tmp_path / "pass")
    with pytest.raises(InvalidOption, match="mtp looks at layer 2 alone: leave layers out"):
        trained(target, kind="mtp", out=tmp_path / "mtp", layers=(0,))


def test_texts_of_a_file_are_not_written_again(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file has exactly the name that was given."""
    options: dict[str, Any] = {"kind": "medusa", "texts": tmp_path / "my.texts", "tokens": 500}
    trained(target, out=tmp_path / "one", **options)
    kept = options["texts"].read_bytes()

    def refused(*_rest: Any) -> None:
        raise AssertionError("it writes texts")

    monkeypatch.setattr(TextWriter, "write", refused)
    trained(target, out=tmp_path / "two", **options)
    assert options["texts"].read_bytes() == kept
    assert sorted(path.name for path in tmp_path.iterdir()) == ["my.texts", "one", "two"]


def test_a_place_for_texts_that_cannot_be_is_refused_first(target: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path, tmp_path / "file" / "texts.npz"):
        options = TrainOptions(**{**SMALL, "out": tmp_path / "head", "texts": place})
        with pytest.raises(InvalidOption, match=r"texts cannot be written to .*; choose another"):
            Trainer(open_checkpoint(target), [], options, refuse)


def test_a_disk_that_is_full_of_texts_loses_neither_head_nor_texts(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"kind": "medusa", "texts": tmp_path / "t.npz", "tokens": 500}
    trained(target, out=tmp_path / "one", **options)
    kept, write_bytes = options["texts"].read_bytes(), Path.write_bytes

    def full(path: Path, data: bytes) -> int:
        if "t.npz" in path.name:
            write_bytes(path, data[:10])
            raise OSError(28, "No space left on device")
        return write_bytes(path, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    asked = TrainOptions(**SMALL | options | {"out": tmp_path / "two"})
    trainer = Trainer(open_checkpoint(target), [], asked, list[str]().append)
    trainer.add(load_texts(options["texts"], 32)[:4])
    with pytest.raises(DiskFull, match="free some space"):
        trainer.run()
    assert HeadFolder(tmp_path / "two").config.kind == "medusa"
    assert options["texts"].read_bytes() == kept
    assert not (tmp_path / ".t.npz.part").exists()


def test_what_stands_beside_a_head_stays_when_it_is_trained_on(
    target: Path, tmp_path: Path
) -> None:
    trained(target, kind="medusa", out=tmp_path / "head", tokens=500)
    (tmp_path / "head" / "README.md").write_text("its card")
    trained(target, kind="medusa", out=tmp_path / "head", tokens=500)
    assert (tmp_path / "head" / "README.md").read_text() == "its card"


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda w: w.pop("fc.weight"), "'fc.weight' is missing"),
        (lambda w: w.update(stranger=w["fc.weight"]), "'stranger' has no place"),
        (lambda w: w.update({"fc.weight": w["fc.weight"][:, :5].copy()}), "has shape"),
        (lambda w: w.update({"fc.weight": w["fc.weight"] * np.nan}), "not finite"),
    ],
)
def test_weights_that_are_not_the_kinds_are_not_trained_on(
    target: Path, tmp_path: Path, edit: Any, said: str
) -> None:
    options: dict[str, Any] = {"kind": "eagle3", "exportable": True, "tokens": 300}
    trained(target, out=tmp_path / "head", **options)
    export_head(HeadFolder(tmp_path / "head"), tmp_path / "other", "speculators", "x")
    path = tmp_path / "other" / "model.safetensors"
    weights = load_file(path)
    edit(weights)
    save_file(weights, path)
    with pytest.raises((InvalidWeights, UnsupportedModel), match=said):
        trained(target, out=tmp_path / "other", **options | {"draft_vocab_size": None})


def test_medusa_heads_of_others_are_trained_on_and_become_ours(
    target: Path, tmp_path: Path
) -> None:
    """They have no norm and no map of ids: they get the target's norm, and all ids."""
    _, first, _ = trained(target, kind="medusa", out=tmp_path / "head", draft_vocab_size=32)
    folder = HeadFolder(tmp_path / "head")
    theirs = {n: folder.float32(n) for n in folder.names() if n not in (D2T, "norm.weight")}
    (tmp_path / "other").mkdir()
    save_file(theirs, tmp_path / "other" / "medusa_lm_head.safetensors")
    values = {"medusa_num_heads": 3, "medusa_num_layers": 1}
    (tmp_path / "other" / "config.json").write_text(json.dumps(values))
    before, _, _ = trained(
        target, kind="medusa", out=tmp_path / "other", tokens=500, draft_vocab_size=None
    )
    assert before["alpha"] == pytest.approx(first["alpha"], abs=0.1)  # another norm
    again = HeadFolder(tmp_path / "other")
    assert again.is_ours
    assert set(again.names()) == set(folder.names())
    unused = folder.config.intermediate_size
    assert replace(again.config, intermediate_size=unused) == folder.config


def test_a_head_gets_more_draft_tokens_and_places(target: Path, tmp_path: Path) -> None:
    out = tmp_path / "head"
    _, first, _ = trained(target, kind="block", out=out, tokens=8_000)
    known = HeadFolder(out, "block").draft_tokens().tolist()
    more = {"draft_vocab_size": 28, "num_places": 4}
    before, _, _ = trained(target, kind="block", out=out, tokens=500, **more)
    assert before["alpha"][:3] == pytest.approx(first["alpha"], abs=0.08)  # what it knew it knows
    folder = HeadFolder(out, "block")
    assert len(set(known) & set(folder.draft_tokens().tolist())) > 20
    assert (folder.config.draft_vocab_size, folder.config.num_guesses) == (28, 4)


def test_a_head_of_another_engine_is_trained_on_and_becomes_ours(
    target: Path, tmp_path: Path
) -> None:
    trained(target, out=tmp_path / "head", tokens=500, exportable=True)
    folder = HeadFolder(tmp_path / "head", "eagle3")
    export_head(folder, tmp_path / "other", "speculators", "")
    trained(target, out=tmp_path / "other", tokens=500)
    assert HeadFolder(tmp_path / "other", "eagle3").config == folder.config
    (tmp_path / "other" / HISTORY).write_text("{}")
    with pytest.raises(InvalidWeights, match="is damaged; delete it"):
        trained(target, out=tmp_path / "other", tokens=500)


def test_the_same_seed_is_the_same_training(target: Path, tmp_path: Path) -> None:
    found = [trained(target, out=tmp_path / name, tokens=5_000)[1] for name in ("a", "b")]
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("a", "b")]
    assert found[0] == found[1]
    assert weights[0] == weights[1]


def test_an_interrupted_training_is_saved(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = torch.optim.AdamW.step
    num = 0

    def interrupted(self: Any, *rest: Any) -> Any:
        nonlocal num
        num += 1
        if num == 5:
            raise KeyboardInterrupt
        return steps(self, *rest)

    monkeypatch.setattr(torch.optim.AdamW, "step", interrupted)
    _, _, said = trained(target, out=tmp_path / "head")
    assert any("interrupted" in line for line in said)
    assert json.loads((tmp_path / "head" / HISTORY).read_text())["calls"][0]["steps"] == 4


def test_a_training_that_diverged_leaves_the_head_that_was_there(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained(target, kind="medusa", out=tmp_path / "head", tokens=2_000)
    before = (tmp_path / "head" / "model.safetensors").read_bytes()

    def diverging(self: Any, *_rest: Any) -> None:
        self.param_groups[0]["params"][0].data.fill_(float("nan"))

    monkeypatch.setattr(torch.optim.AdamW, "step", diverging)
    with pytest.raises(InvalidWeights, match="training diverged"):
        trained(target, kind="medusa", out=tmp_path / "head", tokens=2_000)
    assert (tmp_path / "head" / "model.safetensors").read_bytes() == before


def test_what_a_head_cannot_become_is_refused_before_anything_is_written(
    target: Path, tmp_path: Path
) -> None:
    out = tmp_path / "head"
    trained(target, out=out, tokens=500)
    for asked in ({"layers": (0, 1)}, {"draft_vocab_size": 23}, {"exportable": True}):
        (name,) = asked
        with pytest.raises(InvalidOption, match=f"has a head with {name}=.*leave that option out"):
            Trainer(
                open_checkpoint(target), [], TrainOptions(**{**SMALL, "out": out, **asked}), refuse
            )
    options = TrainOptions(**{**SMALL, "out": tmp_path / "new", "layers": (0, 9)})
    with pytest.raises(InvalidOption, match="go beyond the target's 2"):
        Trainer(open_checkpoint(target), [], options, refuse)


def refuse(said: str) -> None:
    raise AssertionError(f"it began: {said}")


def test_a_head_of_another_target_is_not_trained_on(target: Path, tmp_path: Path) -> None:
    out = tmp_path / "head"
    trained(target, out=out, tokens=500)
    other = write_tiny_model(tmp_path / "other", num_layers=3)
    with pytest.raises(InvalidOption, match="was trained for another target"):
        trained(other, out=out)
    with pytest.raises(InvalidOption, match='holds a head of kind "eagle3"'):
        trained(target, out=out, kind="medusa")
    (out / "model.safetensors").unlink()
    with pytest.raises(InvalidWeights, match="is no trained head"):
        trained(target, out=out)


def test_the_model_writes_the_question_and_the_answer(target: Path) -> None:
    checkpoint = open_checkpoint(target)
    tokenizer = load_tokenizer(checkpoint)
    turns = Turns.of(tokenizer)
    assert turns is not None
    assert tokenizer.decode(turns.before, skip_special=False) == "<|start|>"
    assert tokenizer.decode(turns.after, skip_special=False) == "<|end|><|start|>"
    model = TorchTarget(checkpoint, "cpu", torch.float32)
    asked = [["abc"], ["the cat sat"]]
    texts = TextWriter(model, tokenizer, asked, max_len=48).write(32, seed=3)
    chats = [t for t in texts if t.tokens[t.answer - 2 : t.answer] == turns.after]
    assert 20 < len(chats) < len(texts)  # the others have no turns
    questions = {tuple(t.tokens[1 : t.answer - 2]) for t in chats}
    assert {tuple(tokenizer.encode(text)) for (text,) in asked} <= questions
    assert len(questions) > 6  # the others are the model's own
    assert all(len(t.tokens) <= 48 for t in texts)
    again = TextWriter(model, tokenizer, asked, max_len=48).write(32, seed=3)
    assert again == texts


def test_too_little_memory_is_one_sentence(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_rest: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has …")

    monkeypatch.setattr(Learner, "step", full)
    small = [f"--{name.replace('_', '-')}={value}" for name, value in SMALL.items()]
    failed = CliRunner().invoke(app, ["train", *small, f"--model={target}", f"--out={tmp_path}/h"])
    assert failed.exit_code == 2
    said = " ".join(failed.output.split())
    assert "there is too little memory for this training; lower --batch-len" in said
    assert "Traceback" not in said


def test_every_kind_can_be_trained() -> None:
    assert sorted(HEADS) == sorted(HEAD_KINDS)


def test_layers_are_low_middle_and_high() -> None:
    assert default_layers(30) == (2, 15, 27)
    assert default_layers(3) == (1, 2)
    assert all(default_layers(n)[-1] <= n for n in range(1, 40))


def test_the_command_line_trains_and_refuses(target: Path, tmp_path: Path) -> None:
    out, file = tmp_path / "head", tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "abc"}\n{"turns": ["the cat", "x"]}\nplain words\n')
    assert read_prompts(file) == [["abc"], ["the cat", "x"], ["plain words"]]
    small = [f"--{name.replace('_', '-')}={value}" for name, value in SMALL.items()]
    small += ["--tokens=500", f"--model={target}", f"--out={out}"]
    done = CliRunner().invoke(app, ["train", *small, f"--prompts={file}"])
    assert done.exit_code == 0, done.output
    tried = f"forerun generate --model {target} --device cpu --speculative-config"
    assert tried in done.output.replace("\n", " ")
    drawn = tmp_path / "alpha.svg"
    done = CliRunner().invoke(app, ["train", *small, f"--plot={drawn}"])
    assert done.exit_code == 0, done.output
    assert "place 3" in drawn.read_text()
    for option, said in {
        "--plot=alpha.gif": "end it in .png",
        "--kind=eagle4": "did you mean 'eagle3'",
        "--loss=mse": "unknown loss",
        "--minutes=0": "minutes=0",
        "--layers=9": "go beyond the target's 2",
        f"--prompts={tmp_path}": "cannot read",
    }.items():
        extra = ["--out=" + str(tmp_path / "new")] if "layers" in option else []
        failed = CliRunner().invoke(app, ["train", *small, option, *extra])
        assert failed.exit_code != 0
        assert said in failed.output.replace("\n", " "), failed.output
