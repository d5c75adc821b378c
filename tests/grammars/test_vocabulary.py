"""Tokenizers as llguidance reads them, also those that put a space before the first word."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
import tokenizers
from llguidance import LLMatcher

from forerun.errors import InvalidOption
from forerun.grammars import Grammars, description
from forerun.grammars.vocabulary import vocabulary
from forerun.models.gguf.tokenizer import tokenizer_from_gguf
from forerun.models.text.token_bytes import Spelling
from forerun.models.text.tokenizer import Tokenizer, TokenizerTraits
from forerun.types import StructuredOutputsParams
from tests.grammars.words import words
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


def test_a_special_token_that_opens_calls_is_text() -> None:
    """A grammar allows no other special token, even one that is spelled like its text."""
    backend = tokenizers.Tokenizer.from_str(words()._backend.to_str())
    backend.add_special_tokens(["[TOOL_CALLS]", "[OTHER]"])
    opens, other = (backend.token_to_id(text) or 0 for text in ("[TOOL_CALLS]", "[OTHER]"))
    special = words().special_ids | {opens, other}
    traits = TokenizerTraits(Spelling.BYTE_LEVEL, eos_ids=words().eos_ids, special_ids=special)
    tokenizer = Tokenizer(backend, replace(traits, added_ids=frozenset({opens, other})))
    grammars = Grammars(tokenizer)
    wanted = StructuredOutputsParams(grammar='start: "[TOOL_CALLS][" /[a-z]/ | "[OTHER]"')
    grammar = grammars.of(wanted, shows_special=True)
    assert grammar is not None
    follow = tokenizer.encode("[a", add_special=False)
    assert grammar.num_fitting([], [opens, *follow]) == 3
    assert grammar.num_fitting([], [other]) == 0
    behind: dict[str, Any] = {"grammar": 'start: "[TOOL_CALLS][" /[a-z]/'}
    waiting = grammars.of(
        StructuredOutputsParams(**behind, triggers=("[TOOL_CALLS]",)), shows_special=True
    )
    assert waiting is not None
    assert not waiting.binds(follow)
    assert waiting.binds([*follow, opens])
    assert waiting.num_fitting([*follow, opens], follow) == 2
    must = grammars.of(StructuredOutputsParams(**behind), shows_special=True)
    assert must is not None
    allowed = int.from_bytes(must.allowed_bits([]), "little")
    assert allowed == 1 << opens, "in one token, as the tokenizer spells it"
    hidden = grammars.of(StructuredOutputsParams(regex="[^a]{3}"))
    shown = grammars.of(StructuredOutputsParams(regex="[^a]{13}"), shows_special=True)
    assert hidden is not None
    assert shown is not None
    assert hidden.num_fitting([], [opens]) == 0, "where texts leave it out, it spells nothing"
    assert shown.num_fitting([], [opens]) == 1


@pytest.mark.parametrize(
    "wanted",
    [
        {"json": {"type": "string", "maxLength": 9}},
        {"json": {"type": "array", "items": {"type": "string", "minLength": 3, "maxLength": 40}}},
        {"regex": '[^"]{2,12}x?'},
    ],
    ids=str,
)
def test_masks_that_are_known_by_kind_are_those_of_each_token(wanted: dict[str, Any]) -> None:
    text = description.described(StructuredOutputsParams(**wanted))
    by_kind = vocabulary(words(), shows_special=False)
    each = [LLMatcher(one, text, log_level=0) for one in (by_kind, by_kind.with_slices([]))]
    random = Random(0)
    for _ in range(40):
        bits = [matcher.compute_bitmask() for matcher in each]
        assert bits[0] == bits[1]
        allowed = np.flatnonzero(np.unpackbits(np.frombuffer(bits[0], np.uint8), bitorder="little"))
        token = random.choice(allowed.tolist())
        if token in words().eos_ids:
            break
        for matcher in each:
            matcher.consume_token(token)


def test_what_is_forced_is_spelled_once() -> None:
    """llguidance asks for the tokens of a forced text again at each of its tokens."""
    asked = list[str]()

    class Counting(Tokenizer):
        def encode(
            self, text: str, add_special: bool = True, parse_special: bool = True
        ) -> list[int]:
            asked.append(text)
            return super().encode(text, add_special, parse_special)

    grammars = Grammars(Counting(words()._backend, words()._traits))
    for _ in range(2):
        num_before = len(asked)
        output = list[int]()
        grammar = grammars.of(StructuredOutputsParams(regex="name, names and men"))
        assert grammar is not None
        while not grammar.is_over(output):
            bits = int.from_bytes(grammar.allowed_bits(output), "little")
            output.append(bits.bit_length() - 1)
    assert len(asked) == num_before, "a second answer asks nothing new"
    assert len(set(asked)) == len(asked)
