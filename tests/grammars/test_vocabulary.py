"""Tokenizers as llguidance reads them: those that put a space before the first word, too."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from forerun.errors import InvalidOption
from forerun.grammars import Grammars
from forerun.models.gguf.tokenizer import tokenizer_from_gguf
from forerun.types import StructuredOutputsParams
from tests.models.small_vocabularies import sentencepiece_metadata


@pytest.mark.parametrize(
    "wanted",
    [
        {"choice": ["abc"]},
        {"regex": "ab c"},
        {"choice": ["é日", "a😀b"]},
        {"json": {"type": "object", "properties": {"abc": {"enum": ["é日"]}}, "required": ["abc"]}},
    ],
)
def test_what_is_forced_is_spelled_without_a_space_in_front(wanted: dict[str, Any]) -> None:
    tokenizer, random = tokenizer_from_gguf(sentencepiece_metadata()), Random(1)
    assert tokenizer.strips_space
    grammar, output = Grammars(tokenizer).of(StructuredOutputsParams(**wanted)), list[int]()
    assert grammar is not None
    while not grammar.is_over(output) and len(output) < 60:
        bits = np.unpackbits(
            np.frombuffer(grammar.allowed_bits(output), np.uint8), bitorder="little"
        )
        output.append(random.choice(np.flatnonzero(bits).tolist()))
    text = tokenizer.decode(output)
    assert text in wanted.get("choice", [text])
    assert text.startswith("{") or "json" not in wanted


def test_a_tokenizer_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = tokenizer_from_gguf(sentencepiece_metadata())
    monkeypatch.setattr(tokenizer, "eos_ids", ())
    with pytest.raises(InvalidOption, match="needs a token that ends a text"):
        Grammars(tokenizer).of(StructuredOutputsParams(regex="a"))
