"""What may follow a text and where it ends, compared with a list of all texts as outputs grow and
shrink."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import count
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.errors import GrammarTooMuch, InvalidGrammar, InvalidOption, MissingExtra
from forerun.grammars import Grammars
from forerun.grammars.matched import MatchedGrammar
from forerun.types import Grammar, StructuredOutputsParams
from tests.grammars.words import LETTERS, words

END = words().eos_ids[0]
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
COUNTS = {"type": "object", "additionalProperties": {"type": "integer"}}


def grammar(**wanted: Any) -> Grammar:
    found = Grammars(words()).of(StructuredOutputsParams(**wanted))
    assert found is not None
    return found


def ids(one: Grammar, output: Sequence[int]) -> set[int]:
    """Return the tokens that may follow `output`."""
    bits = np.frombuffer(one.allowed_bits(output), np.uint8)
    return set(np.flatnonzero(np.unpackbits(bits, bitorder="little")).tolist())


def spelled(tokens: Sequence[int]) -> str:
    return "".join(words().token_bytes(token).decode() for token in tokens)


def nested(depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        found = {"type": "object", "properties": {"a": found}}
    return found


texts = st.lists(st.text("abc", min_size=1, max_size=5), min_size=1, max_size=4, unique=True)


@given(texts, st.data())
def test_one_of_several_texts(choice: list[str], data: st.DataObject) -> None:
    """Asked along random walks that go back now and then, as rounds with trees do."""
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
        allowed = ids(one, output)
        assert allowed == ids(grammar(choice=choice), output)
        # Forced text is spelled as the tokenizer would, so only one of its spellings is allowed.
        assert allowed == expected or (len(allowed) == 1 and allowed < expected)
        assert one.is_over(output) == (not goes_on)
        guess = data.draw(st.lists(st.sampled_from(sorted(expected)), max_size=3))
        assert one.num_fitting(output, guess) == (
            _num_fitting(choice, text, guess) if goes_on else 0
        )
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


FORKS: dict[str, dict[str, Any]] = {
    "lark": {"grammar": 'start: "a" s "," | "b" s "-"\ns: /"[a-c]*"/'},
    "nested": {"grammar": 'start: item+\nitem: "a" s "," | "b" s "-" | "c" start "."\ns: /[abc]+/'},
    "either": {"json": {"anyOf": [{"type": "array", "items": {"type": "string"}}, COUNTS]}},
    "open": {"json": {**PERSON, "additionalProperties": True}},
    "fields": {"json": {"type": "object", "properties": {"a": {"type": "string"}, "b": {}}}},
}


@pytest.mark.parametrize("name", FORKS)
def test_what_was_taken_back_is_forgotten(name: str) -> None:
    """Guesses, and the tokens that replace them, are allowed as by a fresh matcher."""
    rng, grammars = Random(0), Grammars(words())

    def fresh() -> Grammar:
        found = grammars.of(StructuredOutputsParams(**FORKS[name]))
        assert found is not None
        return found

    for _ in range(20):
        one, output = fresh(), list[int]()
        while len(output) < 40 and not one.is_over(output):
            for _ in range(rng.randint(0, 3)):
                more = list[int]()
                while len(more) < 5 and not one.is_over(output, more):
                    allowed = ids(fresh(), [*output, *more])
                    assert ids(one, [*output, *more]) == allowed
                    more.append(rng.choice(sorted(allowed)))
                other = [*more[:-1], rng.randrange(END)]
                assert one.num_fitting(output, other) == fresh().num_fitting(output, other)
            output.append(rng.choice(sorted(ids(one, output))))


def test_behind_the_end_there_is_only_the_end() -> None:
    """A draft model may guess on after the end; earlier states are found again."""
    one = grammar(regex="a+")
    output = [*words().encode("aa"), END]
    for behind in ([], [END], [END, 5]):
        assert ids(one, [*output, *behind]) == {END}
        assert one.is_over([*output, *behind])
    assert not one.is_over(output[:2])
    assert one.num_fitting(output[:1], words().encode("aa")) == 2


def test_keys_in_order_leave_one_token() -> None:
    one = grammar(json=PERSON)
    (token,) = ids(one, words().encode('{\n "'))
    assert spelled([token]) == "name"
    assert len(ids(one, words().encode('{"name":"'))) > 20


def test_only_the_end_of_a_text_is_remembered() -> None:
    one, output = grammar(regex="[ab]*"), words().encode("ab") * 100
    for num in range(len(output)):
        assert len(ids(one, output[:num])) > 2
    assert isinstance(one, MatchedGrammar)
    assert len(one._known) <= 65
    assert ids(one, output[:3]) == ids(one, output)


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
        ({"regex": ""}, [""], ["a"]),
        ({"choice": ["yes", "no"]}, ["yes", "no"], ["yo"]),
        ({"grammar": 'start: "a" start "b" | "c"'}, ["aacbb", "c"], ["ab", "acc"]),
        ({"grammar": 'root ::= "a" root "b" | "c"'}, ["aacbb", "c"], ["ab", "acc"]),
        ({"grammar": '?start: "a" | /<[a-z]>/ // <'}, ["a"], ["b"]),
        ({"grammar": '# <\nstart: "a" x ["c"]\nx: "b"'}, ["ab", "abc"], ["ac"]),
        ({"grammar": 'root ::= [^<a]+ "<" | "::="'}, ["bc"], ["a"]),
        ({"json": {"type": "number", "multipleOf": 0.01}}, ["1.25"], ["1.255"]),
        ({"json": {"const": {"multipleOf": 3000017}}}, ['{"'], ["x"]),
        ({"json": {"type": "object", "properties": {"a": {}}}}, ['{"a":1}', "{}"], ['{"b"']),
        ({"json": {"properties": {"a": {}}, "required": ["b"]}}, ['{"b":1}'], ["{}"]),
        ({"json": {"type": "string", "format": "cuid2"}}, ['"any"'], ["1"]),
        (
            {"json": {"type": "object", "properties": {"format": {"const": "e164"}}}},
            ['{"format":"e164"'],
            ['{"format":1'],
        ),
        ({"json": {**COUNTS, "propertyNames": {"type": "string"}}}, ['{"x y":1'], ['{"x":"']),
        (
            {"json": {**COUNTS, "propertyNames": {"type": "string", "enum": ["a", "b"]}}},
            ['{"a":1,"b":2}', "{}"],
            ['{"c"', '{"a":"'],
        ),
        (
            {"json": {**COUNTS, "propertyNames": {"pattern": "^x[ab]$"}}},
            ['{"xa":1}', "{}"],
            ['{"xc"', '{"y', '{"xa":"'],
        ),
        (
            {"json": {"propertyNames": {"enum": ["a"]}, "type": "object", "required": ["a"]}},
            ['{"a":"x"}'],
            ["{}"],
        ),
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
        ({"json": {"propertyNames": {"maxLength": 3}}}, "Unimplemented keys"),
        ({"json": {**PERSON, "propertyNames": {"enum": ["name"]}}}, "Unimplemented keys"),
        ({"json": {"properties": {"a": {"format": "regex"}}}}, "Unknown format"),
        ({"json": {"not": {}, "x-guidance": {"lenient": True}}}, "Unimplemented keys"),
        ({"json": {"$ref": "#"}}, "there is no text"),
        (
            {"json": {"properties": {"a": {"multipleOf": 3000017}}}},
            "more than 10000 without its",
        ),
        (
            {"json": {"type": "number", "multipleOf": 1500.007}},
            "more than 10000 without its",
        ),
        ({"json": {"type": "number", "multipleOf": True}}, "the JSON schema cannot be used"),
        ({"json": nested(150)}, "the JSON schema cannot be used"),
        ({"json": nested(450)}, "the JSON schema cannot be used"),
        ({"regex": "a" * 200_000}, "200000 characters, and 131072 are allowed"),
        ({"choice": ["a" * 200_000]}, "the choice cannot be used"),
        (
            {"grammar": "start: a\na[max_tokens=3]: /[a-z]+/"},
            r"not supported: '\[max_tokens=3\]:'",
        ),
        ({"grammar": 'start: a\na[stop="b"]: /[a-z]+/'}, "not supported"),
        ({"grammar": 'start: "a" <|end|>'}, "not supported: '<'"),
        ({"grammar": 'start: /a\nb/ <|end|> "c"'}, "not supported: '<'"),
        ({"grammar": 'start: "a\nb" <|end|> "c"'}, "not supported: '<'"),
        ({"json": {"properties": {"enum": {"multipleOf": 3000017}}}}, "more than 10000"),
        ({"grammar": 'start: %regex {"substring_words": "a b"}'}, "not supported: '%'"),
        (
            {"grammar": 'start: %json {"multipleOf": 3000017}'},
            "more than 10000 without its",
        ),
        ({"grammar": 'start: %json {"not": {}, "x-guidance": {"lenient": true}}'}, "Unimplemented"),
        ({"grammar": 'start: %json {"type": "string"'}, "the grammar cannot be used"),
        ({"grammar": 'start: %json {"pattern": "//"} <|end|>'}, "not supported: '<'"),
        ({"grammar": 'root ::= "a" <[3]>'}, "the grammar cannot be used"),
    ],
)
def test_what_is_not_understood(wanted: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidGrammar, match=sentence) as caught:
        grammar(**wanted)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({}, "just one of json, json_object, regex, choice, grammar; given: none"),
        ({"json": {}, "regex": "a"}, "given: json and regex"),
        ({"json": "{"}, "no JSON schema"),
        ({"json": [1]}, "no JSON schema"),
        ({"json": {"a": object()}}, "no JSON schema"),
        ({"json": {"a": float("nan")}}, "no JSON schema"),
        ({"json": nested(100_000)}, "nested too deep"),
        ({"regex": "a", "whitespace_pattern": " "}, "and has regex"),
        ({"choice": []}, "a list of texts"),
        ({"choice": ["a", ""]}, "none of them empty"),
        ({"choice": "ab"}, "a list of texts"),
        ({"regex": 5}, "a text"),
        ({"json_object": "yes"}, "true or false"),
        ({"json": {}, "triggers": ["a"]}, "go with grammar or regex, and json"),
        ({"choice": ["a"], "triggers": ["a"]}, "go with grammar or regex, and choice"),
        ({"regex": "a", "triggers": []}, "triggers.*a list of texts"),
        ({"regex": "a", "triggers": "a"}, "triggers.*a list of texts"),
        ({"json": {}, "disable_any_whitespace": True, "whitespace_pattern": " "}, "give one"),
        ({"jsn": {}}, "json"),
    ],
)
def test_what_is_no_option(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidOption, match=sentence):
        StructuredOutputsParams.of(given)


def test_a_caller_may_change_a_schema_afterwards() -> None:
    given = {"enum": ["a"]}
    wanted = StructuredOutputsParams(json=given)
    given["enum"] = ["b"]
    assert wanted == StructuredOutputsParams(json={"enum": ["a"]})
    assert wanted.json == '{"enum": ["a"]}'


GROWING = "a( b|c([a-z]{0,300}){0,300}d)"
TOO_MUCH = "ac" + "".join(Random(0).choices("efghijklm", k=150))


def test_what_one_text_comes_to_is_nothing_to_another() -> None:
    """A text that is too much for the matcher must not break other texts of the same grammar, which
    are copies of one matcher."""
    several = Grammars(words())
    wanted = StructuredOutputsParams(regex=GROWING)

    def follow(text: str) -> Grammar:
        one, output = several.of(wanted), list[int]()
        assert one is not None
        for letter in text:
            (token,) = words().encode(letter)
            assert token in ids(one, output)
            output.append(token)
        assert one.allowed_bits(output)
        return one

    good = follow("a b")
    with pytest.raises(InvalidGrammar, match="the regular expression cannot be used"):
        follow(TOO_MUCH)
    assert ids(good, words().encode("a "))
    for _ in range(2):
        follow("a b")


def test_guesses_that_come_to_nothing_leave_the_text_as_it_is() -> None:
    one = grammar(regex=GROWING)
    output = words().encode("a")
    before = ids(one, output)
    for _ in range(2):
        with pytest.raises(InvalidGrammar):
            one.allowed_bits([token for letter in TOO_MUCH for token in words().encode(letter)])
        assert ids(one, output) == before


def test_texts_share_the_time_in_which_all_others_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps take 0.4 s, so three exceed the shared second; ten seconds earn one second back."""
    clock, now = count(), 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    several, wanted = Grammars(words()), StructuredOutputsParams(regex="[a-z]*")
    texts = [several.of(wanted) for _ in range(4)]
    monkeypatch.setattr("time.thread_time", lambda: 0.4 * next(clock))
    one, other, third, last = (text for text in texts if text is not None)
    for seconds in (0.0, 100.0):
        now += seconds
        output = words().encode("a" * round(1 + seconds))
        for text in (one, other, third):
            assert text.allowed_bits(output)
        for text in (last, one):
            with pytest.raises(GrammarTooMuch, match="a step takes too long"):
                text.allowed_bits([*output, *words().encode("b")])


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forerun.grammars.grammars.find_spec", lambda _: None)
    with pytest.raises(MissingExtra, match=r"forerun\[structured\]"):
        grammar(regex="a")


def test_a_grammar_is_compiled_once_and_old_ones_are_forgotten() -> None:
    several = Grammars(words())
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
