"""What a book knows, and how it is stored."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from forerun.drafters.phrases import PhraseBook, count_phrases, counting, shipped_book
from forerun.drafters.phrases.book import FILE, NUM_CHANCES
from forerun.drafters.phrases.hashing import ORDER, context_hashes, many_hashes
from forerun.errors import InvalidOption, InvalidWeights
from tests.drafters.phrases.books import OWNER, book_of

TEXTS = ([1, 2, 3, 4, 5], [1, 2, 3, 4, 5], [7, 2, 3, 9], [7, 2, 3, 9], [1, 2, 8])


def test_the_longest_context_that_is_known_says_what_follows() -> None:
    book = book_of(*TEXTS)
    after = {context: book.after(context) for context in [(3,), (7, 2, 3), (1, 2, 3), (2,), (6,)]}
    assert {k: found and found[0] for k, found in after.items()} == {
        (3,): 4,  # as often as 9: the smaller
        (7, 2, 3): 9,
        (1, 2, 3): 4,
        (2,): 3,
        (6,): None,
    }
    assert book.after([50, 60, 70, 7, 2, 3]) == book.after([7, 2, 3])
    assert book.after([]) is None


def test_chances_are_shares_that_doubt_what_was_met_seldom() -> None:
    book = book_of(*([[1, 2]] * 9), *([[3, 4]] * 2), [5, 6])
    chances = [book.after([token]) for token in (1, 3, 5)]
    assert chances[2] is None  # met once
    for found, share in zip(chances[:2], (9 / 10, 2 / 3), strict=True):
        assert found is not None
        assert abs(found[1] - share) <= 0.5 / NUM_CHANCES


def test_every_context_is_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compared with counts in plain Python, when no context is left out. So few contexts have no
    hashes in common."""
    monkeypatch.setattr(counting, "_worth", lambda counted, _: np.ones(len(counted.hashes)))
    rng = np.random.default_rng(3)
    texts = [rng.integers(0, 12, 40).tolist() for _ in range(60)]
    counts: dict[tuple[int, ...], Counter[int]] = {}
    for text in texts:
        for end in range(1, len(text)):
            for order in range(1, min(ORDER, end) + 1):
                counts.setdefault(tuple(text[end - order : end]), Counter())[text[end]] += 1
    book = book_of(*texts, num_kept=10**6)
    known = {context: found for context, found in counts.items() if found.total() >= 2}
    assert len(book) == len(known)
    for context, found in known.items():
        answer = book.after(context)
        assert answer is not None
        most = max(found.values())
        assert answer[0] == min(token for token, num in found.items() if num == most)
        assert abs(answer[1] - most / (found.total() + 1)) <= 0.5 / NUM_CHANCES + 1e-9


def test_contexts_do_not_reach_into_the_text_before_and_prompts_are_not_counted() -> None:
    tokens = np.array([1, 2, 3, 1, 2, 3, 8, 9, 8, 9])
    firsts, answers = np.array([0, 3, 6, 8]), np.array([1, 1, 0, 0])
    book = count_phrases(tokens, firsts, answers, OWNER)
    assert book.after([1]) is not None  # a context may be the prompt's
    assert book.after([3]) is None  # its next text begins with 1
    assert book.after([8]) is not None
    assert count_phrases(tokens, firsts, answers + 1, OWNER).after([1]) is None


def test_what_helps_most_is_kept() -> None:
    """A context that says what a shorter one says, with the same chance, is left out first."""
    often = [[9, 1, 2]] * 50
    book = book_of(*often, [3, 4], [3, 4], num_kept=2)
    assert book.after([1]) is not None
    assert book.after([9]) is not None
    assert book.after([3]) is None


def test_a_context_that_guesses_worse_than_a_shorter_one_is_left_out() -> None:
    book = book_of(*[[1, 2]] * 30, [5, 1, 3], [5, 1, 4])
    assert book.after([5, 1]) == book.after([1])


def test_hashes_of_one_text_and_of_many_are_the_same() -> None:
    tokens = np.random.default_rng(1).integers(0, 1 << 17, 20)
    for end in range(ORDER, 20):
        one = list(context_hashes(tokens[:end].tolist()))
        many = [int(many_hashes(tokens, np.array([end]), order)[0]) for order in range(1, 5)]
        assert one == many


@pytest.mark.parametrize("vocab_size", [500, 1 << 17])
def test_a_book_is_read_as_it_was_written(tmp_path: Path, vocab_size: int) -> None:
    high = vocab_size - 1
    book = book_of([high, 2, high, 2], owner=replace(OWNER, vocab_size=vocab_size))
    book.save(tmp_path / "new" / "folder")
    for path in (tmp_path / "new" / "folder", tmp_path / "new" / "folder" / FILE):
        found = PhraseBook.load(path)
        assert found.owner == book.owner
        assert found.after([2]) == book.after([2])
        assert found.after([high]) is not None


def test_a_book_for_another_tokenizer_is_refused() -> None:
    book = book_of([1, 2, 1, 2])
    book.fit(Path("book"), "a tokenizer", 500)
    for other in (("another", 500), ("a tokenizer", 501)):
        with pytest.raises(InvalidOption, match="book was written for a target with another"):
            book.fit(Path("book"), *other)


def test_what_is_no_book_is_refused(tmp_path: Path) -> None:
    book = book_of([1, 2, 1, 2, 3, 4, 3, 4])
    book.save(tmp_path)
    path, whole = tmp_path / FILE, (tmp_path / FILE).read_bytes()
    with pytest.raises(InvalidWeights, match="is no book of phrases"):
        PhraseBook.load(tmp_path / "missing")
    for damaged in (b"", whole[: len(whole) // 2], b"\0" * len(whole)):
        path.write_bytes(damaged)
        with pytest.raises(InvalidWeights, match=re.escape(f"{path} is no book of phrases")):
            PhraseBook.load(tmp_path)
    path.write_bytes(whole)
    arrays = load_file(path)
    about = {"target_fingerprint": "a", "tokenizer_hash": "b", "vocab_size": "500"}
    save_file(arrays, path, about | {"format": "another"})
    with pytest.raises(InvalidWeights, match="has format another, not forerun-phrases-1"):
        PhraseBook.load(tmp_path)
    about |= {"format": "forerun-phrases-1"}
    too_high = arrays["tokens"] + np.uint16(600)
    for wrong in (
        {"sizes": arrays["sizes"][:-1]},
        {"tokens": arrays["tokens"][1:]},
        {"tokens": too_high},
        {"marks": arrays["marks"].astype(np.int64)},
        {"sizes": arrays["sizes"].astype(np.float32)},
        {"marks": arrays["marks"][:, None]},
        {"marks": np.array(3, np.uint16)},
    ):
        save_file({k: np.ascontiguousarray(v) for k, v in (arrays | wrong).items()}, path, about)
        with pytest.raises(InvalidWeights, match="is damaged"):
            PhraseBook.load(tmp_path)


def test_the_packages_book_is_found_by_its_target(tmp_path: Path) -> None:
    book_of([1, 2, 1, 2]).save(tmp_path / "some-model")
    assert shipped_book("a fingerprint", tmp_path) == tmp_path / "some-model"
    assert shipped_book("another", tmp_path) is None
    (tmp_path / "a-damaged-one").mkdir()
    (tmp_path / "a-damaged-one" / FILE).write_bytes(b"half")
    assert shipped_book("a fingerprint", tmp_path) == tmp_path / "some-model"
