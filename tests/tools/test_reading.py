"""Words and calls are read from a text, however it is split."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.tools import FORMATS, Arguments, CallBegun, CallFormat, CallReader, Tool, Words

NAMES = ("add", "add_more", "mail")
TOOLS = tuple(map(Tool, NAMES))
values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 99) | st.text('ab"\\{}[]<>/,\n é', max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab}", max_size=3), inner),
    max_leaves=6,
)
arguments = st.dictionaries(st.sampled_from(["a", "b}", 'c"']), values, max_size=3)
words = st.text('ab <tool_cal>{"name": "add', max_size=30)


def told(form: CallFormat, pieces: list[str]) -> tuple[str, list[tuple[str, str]]]:
    reader, said, calls = CallReader(form, TOOLS), "", list[tuple[str, str]]()
    for idx, text in enumerate(pieces):
        for piece in reader.read(text, is_last=idx == len(pieces) - 1):
            if isinstance(piece, Words):
                assert not calls, "no words behind a call"
                said += piece.text
            elif isinstance(piece, CallBegun):
                calls.append((piece.name, ""))
            elif isinstance(piece, Arguments):
                name, before = calls.pop()
                calls.append((name, before + piece.text))
    assert reader.num_calls == len(calls)
    return said, calls


def cut(text: str, data: st.DataObject) -> list[str]:
    ends = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    return [text[a:b] for a, b in zip([0, *ends], [*ends, len(text)], strict=True)]


@given(
    st.sampled_from(list(FORMATS.values())),
    words,
    st.lists(st.tuples(st.sampled_from(NAMES), arguments), min_size=1, max_size=3),
    st.data(),
)
def test_what_was_written_is_read(
    form: CallFormat, before: str, calls: list[tuple[str, Any]], data: st.DataObject
) -> None:
    if form.between is None:
        calls = calls[:1]
    spelled = [(name, json.dumps(each, ensure_ascii=False)) for name, each in calls]
    text = before + form.written(spelled)
    assert told(form, cut(text, data)) == (before.rstrip(), spelled)


@given(
    st.sampled_from(["\n\n%s", "\n```json\n%s\n```", "\n```\n%s\n```"]),
    words,
    st.sampled_from(NAMES),
    arguments,
    st.sampled_from([None, 2, 4]),
    st.data(),
)
def test_json_alone_is_read_as_well(
    block: str, before: str, name: str, given: Any, indent: int | None, data: st.DataObject
) -> None:
    """JSON after words, or at the start of an answer, where no line breaks are needed."""
    call = json.dumps({"name": name, "arguments": given}, indent=indent)
    text = before + block % call
    said, calls = told(FORMATS["hermes"], cut(text if before else text.lstrip("\n"), data))
    assert (said, [name for name, _ in calls]) == (before.rstrip(), [name])
    assert json.loads(calls[0][1]) == given


CALL = '{"name": "add", "arguments": {"a": 1}}'


@pytest.mark.parametrize(
    "text",
    [
        f"Two calls:\n[{CALL}, {CALL}]",
        f"```json\n[{CALL}, {CALL}]\n```",
        "```json\n" + json.dumps([json.loads(CALL)] * 2, indent=2) + "\n```",
        '```json\n{"tool_calls": [' + CALL + "]}\n```",
        json.dumps({"step": 1, "call": json.loads(CALL)}, indent=2),
        f"Write `{CALL}` to ask.",
        f"```python\ncall({CALL})\n```",
        f"```python\n{CALL}\n```",
        f"I write {CALL}",
        f" {CALL}",
        f"So:\n{CALL}",
        CALL.replace(": ", ":"),
        CALL.replace("add", "adder"),
    ],
)
def test_json_that_has_a_call_in_it_is_words(text: str) -> None:
    form = FORMATS["hermes"]
    assert told(form, [text]) == (text, [])
    assert told(form, list(text)) == (text, [])


def test_what_no_name_begins_with_is_told_at_once() -> None:
    reader = CallReader(FORMATS["hermes"], TOOLS)
    assert reader.read('{"name": "ad') == []
    assert reader.read("o") == [Words('{"name": "ado')]
    reader = CallReader(FORMATS["hermes"], TOOLS)
    assert reader.read('{"name": "add", "arg') == []
    assert reader.read("x") == [Words('{"name": "add", "argx')]
    reader = CallReader(FORMATS["hermes"], TOOLS)
    assert reader.read('{"name": "ad"') == [Words('{"name": "ad"')], "a name's beginning is no name"


@given(st.text(" \n", max_size=6), st.data())
def test_white_space_is_kept(space: str, data: st.DataObject) -> None:
    """The reader puts line breaks before an output, as calls may begin with them; none is told."""
    for text in (space, f"{space}a{space}b{space}"):
        assert told(FORMATS["hermes"], cut(text, data)) == (text, [])


@given(st.sampled_from(list(FORMATS.values())), words, st.data())
def test_words_stay_what_they_are(form: CallFormat, text: str, data: st.DataObject) -> None:
    assert told(form, cut(text, data)) == (text, [])


@given(st.sampled_from(list(FORMATS.values())), arguments, st.data())
def test_an_answer_that_was_cut_off(form: CallFormat, given: Any, data: st.DataObject) -> None:
    """Of a call that is cut off, the part that came is told."""
    spelled = json.dumps(given)
    text = form.written([("add", spelled)])
    end = data.draw(st.integers(0, len(text)))
    said, calls = told(form, cut(text[:end], data))
    num_header = len(form.opens + form.header("add"))
    if end < num_header:
        begun = min(len(trigger) for trigger in form.triggers(TOOLS[:1]))
        assert (said, calls) == (text[:end] if end < begun else "", [])
    else:
        assert (said, calls) == ("", [("add", spelled[: end - num_header])])


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_a_stream_waits_for_nothing_else(form: CallFormat) -> None:
    """Text that cannot begin a call is told at once; arguments come character by character."""
    reader = CallReader(form, TOOLS)
    assert reader.read("Let me see") == [Words("Let me see")]
    assert reader.read(". ") == [Words(".")]
    opened = form.opens + form.header("mail")
    assert reader.read(" " + opened[:-1]) == []
    assert reader.read(opened[-1]) == [CallBegun("mail")]
    assert [reader.read(each) for each in '{"a"'] == [[Arguments(each)] for each in '{"a"']


def test_a_call_that_was_cut_off_is_not_whole() -> None:
    form = FORMATS["hermes"]
    text = form.written([("add", '{"a": 1}')])
    for num, is_whole in ((0, True), (20, True), (48, False), (len(text), True)):
        reader = CallReader(form, TOOLS)
        reader.read(text[:num], is_last=True)
        assert reader.is_whole == is_whole, num
    only = CallReader(form, TOOLS, has_words=False)
    assert only.read(text[:4], is_last=True) == [], "where calls alone may come, these are none"


def test_a_name_that_nobody_knows_is_words() -> None:
    text = '<tool_call>\n{"name": "other", "arguments": {}}\n</tool_call>'
    assert told(FORMATS["hermes"], [text]) == (text, [])
