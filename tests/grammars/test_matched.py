"""What may follow a text: against a list of all texts, back and forth, and where it ends."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.errors import InvalidGrammar, InvalidOption, MissingExtra
from forerun.grammars import Grammars
from forerun.types import Grammar, StructuredOutputsParams
from tests.grammars.words import LETTERS, words

END = words().eos_ids[0]
V = words().vocab_size + 3  # as models pad their vocabularies
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def grammar(**wanted: Any) -> Grammar:
    found = Grammars(words(), V).of(StructuredOutputsParams(**wanted))
    assert found is not None
    return found


def spelled(tokens: Sequence[int]) -> str:
    return "".join(words().token_bytes(token).decode() for token in tokens)


texts = st.lists(st.text("abc", min_size=1, max_size=5), min_size=1, max_size=4, unique=True)


@given(texts, st.data())
def test_one_of_several_texts(choice: list[str], data: st.DataObject) -> None:
    """Asked along random walks that go back at random, as rounds with trees do."""
    one, output = grammar(choice=choice), list[int]()
    for _ in range(12):
        text = spelled(output)
        goes_on = {
            token
            for token in range(words().vocab_size)
            if token != END and any(c.startswith(text + spelled([token])) for c in choice)
        }
        may_end = text in choice
        expected = goes_on | ({END} if may_end else set())
        allowed = set(np.flatnonzero(one.allowed(output)).tolist())
        assert allowed == set(np.flatnonzero(grammar(choice=choice).allowed(output)).tolist())
        # What must come is spelled as the tokenizer would, so only one of its spellings is left.
        assert allowed == expected or (len(allowed) == 1 and allowed < expected)
        assert one.is_over(output) == (not goes_on)
        guess = data.draw(st.lists(st.sampled_from(sorted(expected)), max_size=3))
        assert one.num_fitting(output, guess) == (
            _num_fitting(choice, text, guess) if goes_on else 0
        )
        forced = list(one.forced(output))
        if forced and END not in forced:
            left = [c for c in choice if c.startswith(text)]
            assert all(c.startswith(text + spelled(forced)) for c in left)
        if not goes_on or data.draw(st.booleans()):
            output = output[: data.draw(st.integers(0, len(output)))]
        else:
            output = [*output, data.draw(st.sampled_from(sorted(goes_on)))]


def _num_fitting(choice: list[str], text: str, guess: list[int]) -> int:
    for num, token in enumerate(guess):
        text += spelled([token])
        if token == END:
            return num + (text in choice)
        if not any(c.startswith(text) for c in choice):
            return num
    return len(guess)


def test_behind_the_end_there_is_only_the_end() -> None:
    """A draft model may guess on behind it; what was before is found again."""
    one = grammar(regex="a+")
    output = [*words().encode("aa"), END]
    for behind in ([], [END], [END, 5]):
        assert np.flatnonzero(one.allowed([*output, *behind])).tolist() == [END]
        assert one.is_over([*output, *behind])
    assert not one.is_over(output[:2])
    assert one.num_fitting(output[:1], words().encode("aa")) == 2


def test_equal_choices_have_equal_numbers() -> None:
    one = grammar(json=PERSON)
    behind_name, behind_age = words().encode('{"name'), words().encode('{"name":"x","age')
    assert one.choice(behind_name) == one.choice(behind_age) is not None
    assert one.choice(behind_name) != one.choice(words().encode('{"name":'))


def test_a_wide_choice_has_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forerun.grammars.matched._FEW", 8)
    one = grammar(json=PERSON)
    assert one.choice(words().encode('{"name":"')) is None
    assert one.choice(words().encode('{"name')) is not None


def test_keys_in_order_are_forced() -> None:
    one = grammar(json=PERSON)
    assert spelled(one.forced(words().encode('{\n "'))) == "name"
    assert list(one.forced(words().encode('{"name":"'))) == []


@pytest.mark.parametrize(
    ("wanted", "good", "bad"),
    [
        ({"json": PERSON}, ['{"name":"x","age":1}', '{\n  "name": "x",\n  "age": 1\n}'], ['{"a"']),
        ({"json": json.dumps(PERSON)}, ['{"name": "x", "age": 1}'], ["[", '{  "name"']),
        ({"json_object": True}, ["{}", '{"a":[1,{"b":null}]}'], ["[]", "1"]),
        ({"json": PERSON, "disable_any_whitespace": True}, ['{"name":"x","age":1}'], ['{"name": ']),
        ({"json": PERSON, "whitespace_pattern": "[ ]{3}"}, ['{   "name":   "x"'], ['{ "name"']),
        ({"json": {}}, ["[1,2]", "null", '"x"'], ["x"]),
        ({"regex": "[ab]+-[0-9]{2}"}, ["ab-12"], ["ab-a", "-"]),
        ({"choice": ["yes", "no"]}, ["yes", "no"], ["yo"]),
        ({"grammar": 'start: "a" start "b" | "c"'}, ["aacbb", "c"], ["ab", "acc"]),
        ({"grammar": 'root ::= "a" root "b" | "c"'}, ["aacbb", "c"], ["ab", "acc"]),
    ],
)
def test_every_kind(wanted: dict[str, Any], good: list[str], bad: list[str]) -> None:
    one = grammar(**wanted)
    for text in good:
        tokens = words().encode(text)
        assert one.num_fitting((), tokens) == len(tokens), text
    for text in bad:
        tokens = words().encode(text)
        assert one.num_fitting((), tokens) < len(tokens), text


@pytest.mark.parametrize(
    ("wanted", "sentence"),
    [
        ({"regex": "(ab"}, r"the regular expression cannot be used \(.+\); mend it."),
        ({"json": {"type": "nonsense"}}, r"the JSON schema cannot be used \(.+\); mend it."),
        ({"grammar": "start: nowhere"}, r"the grammar cannot be used \(.+\); mend it."),
        ({"grammar": "root ::= nowhere"}, r"the grammar cannot be used \(.+\); mend it."),
        ({"json": {"not": {}}}, "the JSON schema cannot be used .+Unimplemented keys"),
    ],
)
def test_what_is_not_understood(wanted: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidGrammar, match=sentence) as caught:
        grammar(**wanted)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({}, "one of json, json_object, regex, choice, grammar; none is given"),
        ({"json": {}, "regex": "a"}, "json and regex is given"),
        ({"json": "{"}, "a JSON schema"),
        ({"json": [1]}, "a JSON schema: an object"),
        ({"choice": []}, "a list of texts"),
        ({"choice": ["a", ""]}, "none of them empty"),
        ({"choice": "ab"}, "a list of texts"),
        ({"regex": 5}, "a text"),
        ({"json_object": "yes"}, "true or false"),
        ({"json": {}, "disable_any_whitespace": True, "whitespace_pattern": " "}, "give one"),
        ({"jsn": {}}, "json"),
    ],
)
def test_what_is_no_option(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidOption, match=sentence):
        StructuredOutputsParams.of(given)


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forerun.grammars.grammars.find_spec", lambda _: None)
    with pytest.raises(MissingExtra, match=r"forerun\[structured\]"):
        grammar(regex="a")


def test_a_grammar_is_compiled_once_and_old_ones_are_forgotten() -> None:
    several = Grammars(words(), V)
    first = several.of(StructuredOutputsParams(regex="a"))
    for number in range(100):
        several.of(StructuredOutputsParams(regex=f"a{{{number + 1}}}"))
    again = several.of(StructuredOutputsParams(regex="a"))
    assert first is not None
    assert again is not None
    assert first is not again, "two texts cannot share one"
    assert len(several._kept) == 64


def test_thousands_of_texts() -> None:
    one = grammar(choice=[f"{number:04d}" for number in range(4096)])
    assert one.num_fitting((), words().encode("4095")) == 4
    assert one.num_fitting((), words().encode("4096")) == 3


def test_letters_are_single_tokens() -> None:
    assert [len(words().encode(letter)) for letter in LETTERS] == [1] * len(LETTERS)
