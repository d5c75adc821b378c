"""The package's book, and which drafters are used where a model has one."""

from __future__ import annotations

from pathlib import Path

import pytest

import forerun.drafters.heads as heads
import forerun.drafters.phrases as phrases
import forerun.engine.api.llm as llm_room
from forerun.drafters.heads import model_fingerprint
from forerun.drafters.phrases import PhraseBook, shipped_book
from forerun.drafters.phrases.book import Owner
from forerun.engine import LLM
from forerun.errors import InvalidOption
from forerun.models.hf.json_file import read_json
from forerun.models.opening import load_tokenizer, open_checkpoint
from forerun.models.text.compatibility import tokenizer_hash
from forerun.types import SamplingParams
from tests.drafters.phrases.books import book_of
from tests.tiny_model import write_tiny_model

GREEDY = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
PROMPT = {"prompt_token_ids": [5, 6, 7]}


def test_the_book_of_the_package_is_that_of_smollm2() -> None:
    config = read_json(Path(heads.__file__).with_name("weights") / "smollm2-135m-block/config.json")
    path = shipped_book(config["target_fingerprint"])
    assert path is not None
    book = PhraseBook.load(path)
    book.fit(path, config["tokenizer_hash"], config["target_vocab_size"])
    assert len(book) == 300_000


def test_every_book_of_the_package_has_an_owner_and_a_reader() -> None:
    folders = sorted(
        path.parent for path in Path(phrases.__file__).parent.glob("weights/*/*.safe*")
    )
    assert [folder.name for folder in folders] == ["qwen2.5-coder-1.5b", "smollm2-135m"]
    books = [PhraseBook.load(folder) for folder in folders]
    assert len({book.owner.target_fingerprint for book in books}) == len(books)
    for folder, book in zip(folders, books, strict=True):
        assert shipped_book(book.owner.target_fingerprint) == folder
        assert f"{len(book):,} contexts" in (folder / "README.md").read_text("utf-8")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("models") / "target", seed=0, num_layers=2)


def engine(target: Path, **config: object) -> LLM:
    return LLM(str(target), device="cpu", num_threads=1, speculative_config=config or None)


def methods(llm: LLM) -> list[str]:
    speculation = llm.engine.core.speculation
    assert speculation is not None
    return speculation.methods


def write_book(model: Path, folder: Path, *, is_foreign: bool = False) -> tuple[Path, list[int]]:
    """Write a book of the model's answer to PROMPT; return its folder and the answer."""
    checkpoint = open_checkpoint(model)
    (answer,) = engine(model).generate([PROMPT], GREEDY)
    said = [5, 6, 7, *answer.outputs[0].token_ids]
    tokenizer = "another" if is_foreign else tokenizer_hash(load_tokenizer(checkpoint))
    owner = Owner(model_fingerprint(checkpoint), tokenizer, checkpoint.config.vocab_size)
    book_of(*[said] * 40, owner=owner).save(folder)
    return folder, said[3:]


def test_by_default_it_is_asked_and_saves_passes(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, said = write_book(model, tmp_path / "book")
    monkeypatch.setattr(llm_room, "shipped_book", lambda _: path)
    fixed = engine(model, method="phrases", adaptive=False)
    (answer,) = fixed.generate([PROMPT], GREEDY)
    assert list(answer.outputs[0].token_ids) == said
    stats = answer.outputs[0].stats
    assert stats["target_passes"] < len(said) / 2
    assert stats["drafters"].keys() == {"phrases"}
    default = engine(model, method="auto")
    assert methods(default) == ["suffix", "phrases"]
    assert list(default.generate([PROMPT], GREEDY)[0].outputs[0].token_ids) == said


def test_a_book_of_another_tokenizer_is_left_out_by_default_and_refused_by_name(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _ = write_book(model, tmp_path / "book", is_foreign=True)
    monkeypatch.setattr(llm_room, "shipped_book", lambda _: path)
    default = engine(model, method="auto")
    assert methods(default) == ["suffix"]
    assert "another tokenizer" in default.metrics()["left_out"]["phrases"]
    with pytest.raises(InvalidOption, match="another tokenizer"):
        engine(model, method="phrases", model=str(path))


def test_where_there_is_no_book_one_has_to_be_named(model: Path) -> None:
    with pytest.raises(InvalidOption, match="no book of phrases comes with the package"):
        engine(model, method="phrases")
