"""Tokenizers built from GGUF metadata: both kinds, every way to cut words, and bad fields."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from forerun.errors import InvalidTokenizer
from forerun.models.gguf.pre_tokenizers import PRE_TOKENIZERS
from forerun.models.gguf.tokenizer import tokenizer_from_gguf
from tests.models.small_vocabularies import byte_level_metadata, sentencepiece_metadata


def _tokens(metadata: dict[str, Any], text: str, **options: bool) -> list[str]:
    tokenizer = tokenizer_from_gguf(metadata)
    return [tokenizer.token(i) for i in tokenizer.encode(text, **options)]


def test_sentencepiece_joins_by_score() -> None:
    # "ab" (-4) is joined before "bc" (-5), then "abc" (-6) beats "▁a" (-7).
    assert _tokens(sentencepiece_metadata(), "abc") == ["<s>", "▁", "abc"]
    scores = sentencepiece_metadata()["tokenizer.ggml.scores"].copy()
    scores[-3] = 1.0  # now "▁a" is joined first
    assert _tokens(sentencepiece_metadata(scores=scores), "abc") == ["<s>", "▁a", "bc"]


def test_sentencepiece_falls_back_to_bytes() -> None:
    assert _tokens(sentencepiece_metadata(), "é\nü")[2:] == ["é", "<0x0A>", "<0xC3>", "<0xBC>"]


def test_sentencepiece_puts_a_space_before_the_text_and_takes_it_away() -> None:
    tokenizer = tokenizer_from_gguf(sentencepiece_metadata())
    assert tokenizer.decode(tokenizer.encode("ab  c")) == "ab  c"
    assert tokenizer.decode(tokenizer.encode(" ab")) == " ab"
    plain = tokenizer_from_gguf(sentencepiece_metadata(add_space_prefix=False))
    assert [plain.token(i) for i in plain.encode("ab")] == ["<s>", "ab"]
    assert plain.decode(plain.encode(" ab")) == " ab"


def test_continued_text_keeps_its_space() -> None:
    tokenizer = tokenizer_from_gguf(sentencepiece_metadata())
    ids = tokenizer.encode("ab", add_special=False)
    assert tokenizer.decode(ids) == "ab"
    assert tokenizer.decode(ids, continuing=True) == " ab"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ["<s>", "▁", "b"]),
        ({"add_bos_token": False}, ["▁", "b"]),
        ({"add_eos_token": True}, ["<s>", "▁", "b", "</s>"]),
    ],
)
def test_what_goes_around_a_prompt(changes: dict[str, Any], expected: list[str]) -> None:
    assert _tokens(sentencepiece_metadata(**changes), "b") == expected
    assert _tokens(sentencepiece_metadata(**changes), "b", add_special=False) == ["▁", "b"]


def test_byte_level_merges_and_special_tokens() -> None:
    metadata = byte_level_metadata()
    assert _tokens(metadata, "abc<|end|>b") == ["abc", "<|end|>", "b"]
    assert "<|end|>" not in _tokens(metadata, "abc<|end|>b", parse_special=False)


WORDS = {
    "default": ["I", "'m", "Ġ123", "Ġx", "'", "S", "ĊĊĠ", "Ġend"],
    "smollm": ["I", "'m", "Ġ", "1", "2", "3", "Ġx", "'", "S", "ĊĊĠ", "Ġend"],
    "llama-bpe": ["I", "'m", "Ġ", "123", "Ġx", "'S", "ĊĊ", "Ġ", "Ġend"],
    "qwen2": ["I", "'m", "Ġ", "1", "2", "3", "Ġx", "'S", "ĊĊ", "Ġ", "Ġend"],
    "tekken": ["I", "'m", "Ġ", "1", "2", "3", "Ġx", "'S", "ĊĊ", "Ġ", "Ġend"],
}


@pytest.mark.parametrize("name", WORDS)
def test_words_are_cut_as_each_family_does(name: str) -> None:
    cut = PRE_TOKENIZERS[name]().splitter.pre_tokenize_str("I'm 123 x'S\n\n  end")
    assert [word for word, _ in cut] == WORDS[name]


def test_families_differ_where_they_should() -> None:
    def words(name: str, text: str) -> list[str]:
        return [word for word, _ in PRE_TOKENIZERS[name]().splitter.pre_tokenize_str(text)]

    assert words("llama-bpe", "12345") == ["123", "45"]
    assert words("qwen2", "(word") == ["(word"]
    assert words("smollm", "(word") == ["(", "word"]
    assert words("tekken", "fooBar") == ["foo", "Bar"]
    assert words("llama-bpe", "fooBar") == ["fooBar"]


def test_qwen_normalises_text() -> None:
    assert _tokens(byte_level_metadata(), "e\u0301") == _tokens(byte_level_metadata(), "\u00e9")
    other = byte_level_metadata(pre="smollm")
    assert _tokens(other, "e\u0301") != _tokens(other, "\u00e9")


def test_several_ids_may_end_a_text() -> None:
    tokenizer = tokenizer_from_gguf(byte_level_metadata(eot_token_id=259))
    assert tokenizer.eos_ids == (258, 259)


def _ending(name: str, kind: int) -> tuple[int, ...]:
    """The end ids of a vocabulary whose token 259 has this name; its file lists 258."""
    metadata = byte_level_metadata()
    tokens = [*metadata["tokenizer.ggml.tokens"][:259], name]
    kinds = np.array([*[1] * 258, 3, kind], np.int32)
    return tokenizer_from_gguf(byte_level_metadata(tokens=tokens, token_type=kinds)).eos_ids


@pytest.mark.parametrize("name", ["<|endoftext|>", "<|im_end|>", "<|eot_id|>", "</s>"])
def test_a_control_token_that_is_called_an_end_is_one(name: str) -> None:
    assert _ending(name, kind=3) == (258, 259)
    assert _ending(name, kind=1) == _ending(name, kind=4) == (258,)


def test_other_control_tokens_end_nothing() -> None:
    assert _ending("<|im_start|>", kind=3) == _ending("<|file_sep|>", kind=3) == (258,)


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"model": "bert"}, "'bert'"),
        ({"pre": "klingon"}, "'klingon'.*smollm"),
        ({"tokens": None}, "tokens"),
        ({"tokens": ["a", "a"]}, "distinct"),
        ({"token_type": np.zeros(3, np.int32)}, "token_type"),
        ({"merges": ["a zzz"]}, "a zzz"),
        ({"merges": ["nothing"]}, "nothing"),
        ({"eos_token_id": 10**6}, "eos_token_id"),
        ({"add_bos_token": 3}, "add_bos_token"),
    ],
)
def test_bad_fields_are_named(changes: dict[str, Any], names: str) -> None:
    with pytest.raises(InvalidTokenizer, match=names):
        tokenizer_from_gguf(byte_level_metadata(**changes))
