"""Streaming text: whole characters, never taken back, and equal to decoding at once."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forerun.engine.request.output_text import OutputText
from forerun.models.gguf.tokenizer import tokenizer_from_gguf
from tests.models.small_vocabularies import byte_level_metadata, sentencepiece_metadata

BYTE_LEVEL = tokenizer_from_gguf(byte_level_metadata())
SENTENCEPIECE = tokenizer_from_gguf(sentencepiece_metadata())
BOTH = pytest.mark.parametrize(
    "tokenizer", [BYTE_LEVEL, SENTENCEPIECE], ids=["byte-level", "sentencepiece"]
)


def _stream(tokenizer: Any, ids: list[int], skip_special: bool = True) -> list[str]:
    """Return what each token adds to the text, and then what its end adds."""
    begun = OutputText.start(tokenizer, (), include_stop=False, skip_special=skip_special)
    grown = [*itertools.accumulate(ids, OutputText.push, initial=begun)]
    texts = [text.text for text in (*grown, grown[-1].finish())]
    return [after.removeprefix(before) for before, after in itertools.pairwise(texts)]


@BOTH
@pytest.mark.parametrize("skip_special", [True, False])
def test_any_ids_stream_to_their_text(tokenizer: Any, skip_special: bool) -> None:
    rng = random.Random(3)
    for _ in range(300):
        ids = [rng.randrange(tokenizer.vocab_size) for _ in range(rng.randrange(12))]
        whole = tokenizer.decode(ids, skip_special, continuing=True)
        assert "".join(_stream(tokenizer, ids, skip_special)) == whole, ids


@BOTH
@pytest.mark.parametrize("skip_special", [True, False])
def test_tokens_together_are_the_same_text_as_one_by_one(
    tokenizer: Any, skip_special: bool
) -> None:
    rng = random.Random(5)
    begun = OutputText.start(tokenizer, (), include_stop=False, skip_special=skip_special)
    texts = ["Grüße, 世界 🌍!", *(None for _ in range(300))]
    for text in texts:
        ids = [rng.randrange(tokenizer.vocab_size) for _ in range(rng.randrange(12))]
        if text is not None:  # characters that span several tokens
            ids = tokenizer.encode(text, add_special=False, parse_special=False)
        at = rng.randrange(len(ids) + 1)  # a round may end inside a character
        one_by_one = [*itertools.accumulate(ids, OutputText.push, initial=begun)]
        first, ends = begun.push_all(ids[:at])
        found, more = first.push_all(ids[at:])
        assert found == one_by_one[-1]
        assert [*ends, *more] == [len(each.text) for each in one_by_one[1:]]


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=20))
def test_text_comes_back_without_broken_characters(text: str) -> None:
    for tokenizer in (BYTE_LEVEL, SENTENCEPIECE):
        ids = tokenizer.encode(text, add_special=False, parse_special=False)
        parts = _stream(tokenizer, ids)
        assert "".join(parts) == tokenizer.decode(ids, continuing=True)
        assert all(("\ufffd" in part) <= ("\ufffd" in tokenizer.decode(ids)) for part in parts)


@BOTH
def test_a_character_waits_for_its_last_byte(tokenizer: Any) -> None:
    ids = tokenizer.encode("🎉a", add_special=False)[-5:]
    assert _stream(tokenizer, ids) == ["", "", "", "🎉", "a", ""]


@BOTH
def test_an_unfinished_character_is_marked_at_the_end(tokenizer: Any) -> None:
    ids = tokenizer.encode("🎉", add_special=False)[-4:-1]
    assert _stream(tokenizer, ids) == ["", "", "", "\ufffd"]


@settings(max_examples=300, deadline=None)
@given(st.text("ab", max_size=12), st.lists(st.text("ab", min_size=1, max_size=5), min_size=1))
def test_what_may_begin_a_stop_string_is_not_certain(text: str, stops: list[str]) -> None:
    begun = OutputText.start(BYTE_LEVEL, stops, include_stop=False, skip_special=True)
    ends = [text[at:] for at in range(len(text))]
    begins = {stop[:length] for stop in stops for length in range(1, len(stop))}
    longest = max((len(end) for end in ends if end in begins), default=0)
    assert begun._replace(text=text).num_certain == len(text) - longest
