"""Log-probabilities of tokens that are not whole characters, or not in the text."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import tokenizers

from forerun.models.text.token_bytes import BYTE_LETTERS, Spelling
from forerun.models.text.tokenizer import Tokenizer, TokenizerTraits
from forerun.server.answers.logprobs import completion_logprobs, prompt_logprobs
from forerun.types import SamplingParams

LETTER = {byte: letter for letter, byte in BYTE_LETTERS.items()}


def tokenizer_of(pieces: list[str], traits: TokenizerTraits) -> Tokenizer:
    vocab = {piece: idx for idx, piece in enumerate(pieces)}
    return Tokenizer(tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocab, merges=[])), traits)


def byte_level(*pieces: bytes) -> Tokenizer:
    spelled = ["".join(LETTER[byte] for byte in piece) for piece in pieces]
    traits = TokenizerTraits(Spelling.BYTE_LEVEL, special_ids=frozenset({0}))
    return tokenizer_of(spelled, traits)


def shown(tokenizer: Tokenizer, prompt: tuple[int, ...], **options: Any) -> dict[str, Any]:
    """Return a completion's log-probabilities of a prompt each of whose tokens is the likeliest."""
    params = SamplingParams(prompt_logprobs=1, **options)
    found = [None, *({token: -1.0} for token in prompt[1:])]
    request = cast(Any, SimpleNamespace(prompt=prompt, prompt_logprobs=found, params=params))
    text = tokenizer.decode(prompt, skip_special=params.skip_special_tokens)
    rows = prompt_logprobs(request, tokenizer, text)
    return {"text": text, **completion_logprobs(tokenizer, rows, len(text))}


def test_a_token_within_a_character_begins_where_that_does() -> None:
    tokenizer = byte_level(b"<s>", b"\xf0\x9f", b"\x8e", b"\x89", "é".encode(), b" ok", b"a\xf0")
    emoji = (1, 2, 3)
    found = shown(tokenizer, (0, 4, *emoji, *emoji, 5, 4))
    assert found["text"] == "é🎉🎉 oké"
    assert found["text_offset"] == [0, 0, 1, 1, 1, 2, 2, 2, 3, 6]
    assert found["tokens"][2:5] == ["bytes:\\xf0\\x9f", "bytes:\\x8e", "bytes:\\x89"]
    assert found["top_logprobs"][:2] == [None, {"é": -1.0}]
    found = shown(tokenizer, (0, 4, *emoji), skip_special_tokens=False)
    assert found["text_offset"] == [0, 3, 4, 4, 4]
    broken = shown(tokenizer, (4, 6, 5, 1))  # incomplete characters are U+FFFD
    assert broken["text"] == "éa\ufffd ok\ufffd"
    assert broken["text_offset"] == [0, 1, 2, 6]  # " ok" might have completed it


def test_a_space_that_the_text_leaves_out_has_no_length() -> None:
    pieces = ["<s>", "▁a", "b", "▁c"]
    special = frozenset({0})
    traits = TokenizerTraits(Spelling.SENTENCEPIECE, strips_space=True, special_ids=special)
    found = shown(tokenizer_of(pieces, traits), (0, 1, 2, 3))
    assert found["text"] == "ab c"
    assert found["text_offset"] == [0, 0, 1, 2]


@pytest.mark.parametrize(
    ("text", "prompt", "offsets"),
    [
        ("abab", (1, 2, 1, 2), [0, 1, 2, 3]),
        ("abab", (0, 1, 2, 1, 2), [0, 0, 1, 2, 3]),
        ("abab", (0, 1, 2, 1, 2, 3), [0, 0, 1, 2, 3, 4]),
        ("ab", (1, 2, 1, 2), [0, 0, 0, 1]),  # not the text's own tokens: aligned at the end
        ("aBab", (1, 2, 1, 2), [0, 1, 2, 3]),
    ],
)
def test_a_text_has_its_place_among_what_the_tokenizer_puts_around_it(
    text: str, prompt: tuple[int, ...], offsets: list[int]
) -> None:
    tokenizer = byte_level(b"<s>", b"a", b"b", b"</s>")
    params, found = SamplingParams(prompt_logprobs=0), [None, *({t: -1.0} for t in prompt[1:])]
    request = cast(Any, SimpleNamespace(prompt=prompt, prompt_logprobs=found, params=params))
    rows = prompt_logprobs(request, tokenizer, text)
    assert completion_logprobs(tokenizer, rows, len(text))["text_offset"] == offsets


def test_tokens_that_are_no_text_are_told_apart() -> None:
    """Incomplete bytes are named by their bytes: as U+FFFD they would overwrite each other."""
    tokenizer = byte_level(b"<s>", b"\xf0", b"\x9f", b"a")
    params = SamplingParams(prompt_logprobs=3)
    found = [None, {1: -1.0, 2: -2.0, 3: -3.0}]
    request = cast(Any, SimpleNamespace(prompt=(0, 3), prompt_logprobs=found, params=params))
    rows = prompt_logprobs(request, tokenizer, "a")
    top = completion_logprobs(tokenizer, rows, 1)["top_logprobs"][1]
    assert top == {"bytes:\\xf0": -1.0, "bytes:\\x9f": -2.0, "a": -3.0}
