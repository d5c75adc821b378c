"""Streaming text: whole characters, never taken back, and equal to decoding at once."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forerun.models.gguf.tokenizer import tokenizer_from_gguf
from forerun.models.text.text_stream import TextStream
from tests.models.small_vocabularies import byte_level_metadata, sentencepiece_metadata

BYTE_LEVEL = tokenizer_from_gguf(byte_level_metadata())
SENTENCEPIECE = tokenizer_from_gguf(sentencepiece_metadata())
BOTH = pytest.mark.parametrize(
    "tokenizer", [BYTE_LEVEL, SENTENCEPIECE], ids=["byte-level", "sentencepiece"]
)


def _stream(tokenizer: Any, ids: list[int], **options: bool) -> list[str]:
    stream = TextStream(tokenizer, **options)
    return [*(stream.push(i).text for i in ids), stream.finish().text]


@BOTH
@pytest.mark.parametrize("skip_special", [True, False])
@pytest.mark.parametrize("continuing", [True, False])
def test_any_ids_stream_to_their_text(tokenizer: Any, skip_special: bool, continuing: bool) -> None:
    rng = random.Random(3)
    for _ in range(300):
        ids = [rng.randrange(tokenizer.vocab_size) for _ in range(rng.randrange(12))]
        whole = tokenizer.decode(ids, skip_special, continuing)
        parts = _stream(tokenizer, ids, skip_special=skip_special, continuing=continuing)
        assert "".join(parts) == whole, ids


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=20))
def test_text_comes_back_without_broken_characters(text: str) -> None:
    for tokenizer in (BYTE_LEVEL, SENTENCEPIECE):
        ids = tokenizer.encode(text, add_special=False, parse_special=False)
        parts = _stream(tokenizer, ids, continuing=False)
        assert "".join(parts) == tokenizer.decode(ids)
        assert all(("\ufffd" in part) <= ("\ufffd" in tokenizer.decode(ids)) for part in parts)


@BOTH
def test_a_character_waits_for_its_last_byte(tokenizer: Any) -> None:
    ids = tokenizer.encode("🎉a", add_special=False)[-5:]
    assert _stream(tokenizer, ids) == ["", "", "", "🎉", "a", ""]


@BOTH
def test_an_unfinished_character_is_marked_at_the_end(tokenizer: Any) -> None:
    ids = tokenizer.encode("🎉", add_special=False)[-4:-1]
    assert _stream(tokenizer, ids) == ["", "", "", "\ufffd"]


def test_chunks_name_the_tokens_they_cover() -> None:
    ids = BYTE_LEVEL.encode("a🎉b")
    stream = TextStream(BYTE_LEVEL)
    chunks = [stream.push(i) for i in ids]
    assert [chunk.tokens for chunk in chunks if chunk.text] == [
        (ids[0],),
        tuple(ids[1:5]),
        (ids[5],),
    ]
    assert stream.finish().tokens == ()


def test_the_first_space_goes_only_where_a_text_begins() -> None:
    ids = SENTENCEPIECE.encode("ab", add_special=True)
    assert _stream(SENTENCEPIECE, ids, continuing=False) == ["", "", "ab", ""]
    assert _stream(SENTENCEPIECE, ids, continuing=True) == ["", " ", "ab", ""]
