"""A book that a target writes of itself, on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from forerun.cli import app
from forerun.drafters.phrases import PhraseBook
from forerun.drafters.phrases.book import FILE
from forerun.engine import LLM
from forerun.errors import InvalidOption
from forerun.models.opening import open_checkpoint
from forerun.training.options import TrainOptions
from forerun.types import SamplingParams
from tests.tiny_model import write_tiny_model

torch = pytest.importorskip("torch", reason="training needs the extra forerun[train]")
torch.set_num_threads(1)

from forerun.training import phrase_writer  # noqa: E402
from forerun.training.texts import TextWriter  # noqa: E402

SMALL: dict[str, Any] = {
    "kind": "phrases",
    "max_len": 48,
    "num_written": 160,
    "tokens": 2000,
    "device": "cpu",
}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with sharp laws, which therefore repeats itself."""
    folder = tmp_path_factory.mktemp("models") / "target"
    return write_tiny_model(folder, seed=0, sharpness=4.0, num_layers=2)


def write(target: Path, **options: Any) -> list[str]:
    said: list[str] = []
    whole = TrainOptions(**{**SMALL, **options})
    phrase_writer.write_book(open_checkpoint(target), [], whole, said.append)
    return said


def test_what_it_wrote_is_served(target: Path, tmp_path: Path) -> None:
    out, texts = tmp_path / "book", tmp_path / "texts.npz"
    said = write(target, out=out, texts=texts)
    assert said[-1].endswith("was guessed right")
    assert int(said[-1].split("other texts ")[1].split("%")[0]) > 20
    config = {"method": "phrases", "model": str(out), "adaptive": False}
    llm = LLM(str(target), device="cpu", num_threads=1, speculative_config=config)
    greedy = SamplingParams(temperature=0, max_tokens=30, ignore_eos=True)
    (answer,) = llm.generate([{"prompt_token_ids": [3, 4]}], greedy)
    assert answer.outputs[0].stats["accepted_tokens"] > 0
    before = (out / FILE).read_bytes()
    write(target, out=out, texts=texts, tokens=1)  # with those that it kept, and a few more
    assert len(PhraseBook.load(out)) >= 1
    assert (out / FILE).read_bytes() != before


def test_an_interrupted_call_counts_what_there_is(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = TextWriter.write
    calls: list[int] = []

    def stopped(self: TextWriter, num: int, seed: int) -> Any:
        calls.append(seed)
        if len(calls) > 2:
            raise KeyboardInterrupt
        return written(self, num, seed)

    monkeypatch.setattr(TextWriter, "write", stopped)
    said = write(target, out=tmp_path / "book", tokens=10**9)
    assert any("interrupted" in line for line in said)
    assert len(PhraseBook.load(tmp_path / "book")) > 10


def test_too_few_texts_and_other_things_are_refused(target: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="too few to count"):
        write(target, out=tmp_path / "few", num_written=8, tokens=1)
    assert not (tmp_path / "few").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("dear")
    for mine in (tmp_path / "mine", tmp_path / "mine" / "thesis.txt"):
        with pytest.raises(InvalidOption, match="something else than phrases"):
            write(target, out=mine)
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "dear"


def test_the_command_says_how_to_try_it(target: Path, tmp_path: Path) -> None:
    options = ["--kind", "phrases", "--device", "cpu", "--tokens", "2000", "--num-written", "160"]
    where = ["--max-len", "48", "--out", str(tmp_path / "book"), "--model", str(target)]
    result = CliRunner().invoke(app, ["train", *options, *where])
    assert result.exit_code == 0, result.output
    assert '"method": "phrases"' in result.output + (result.stderr or "")
