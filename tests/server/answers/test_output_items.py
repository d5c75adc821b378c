"""Items of a response: the same however an answer is split, log-probabilities with their words."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forerun.replies import WORDS_ALONE, Reasoning, ReasoningMarks, ReplyForm
from forerun.server.answers.output_items import Chance, OutputItems
from forerun.tools import Calling
from forerun.tools.formats import FORMATS
from forerun.tools.tool import Tool
from forerun.types import StructuredOutputsParams

HERMES, TOOL = FORMATS["hermes"], Tool("f")
CALLING = Calling(HERMES, [TOOL], [TOOL], StructuredOutputsParams(regex="a"))
REASONING = Reasoning(ReasoningMarks("<think>", "</think>"), is_begun=False)
FORMS = (
    WORDS_ALONE,
    ReplyForm(calling=CALLING),
    ReplyForm(REASONING),
    ReplyForm(REASONING, CALLING),
)
CALL = HERMES.written([("f", '{"a": 1}')])


def told(form: ReplyForm, pieces: list[str], status: str = "completed") -> tuple[list[Any], Any]:
    """Return events and items; each character is a token, and an empty token ends the text."""
    items, start, events = OutputItems("resp_1", form), 0, list[Any]()
    events += items.opening()
    for idx, text in enumerate(pieces):
        is_last = idx == len(pieces) - 1
        end = start + len(text) + is_last
        chances = [Chance(at, {"at": at}) for at in range(start, end)]
        events += items.read(text, chances, [{"round": idx}], is_last=is_last)
        start = end
    events += items.closing(status)
    return events, items.done


def words_in(text: str, form: ReplyForm) -> range:
    """Return the positions of the words, and of the text's end if the text ends in words."""
    begin = text.index("</think>") + 8 if form.reasoning and "</think>" in text else 0
    if form.calling is None or "<tool_call>" not in text:
        return range(begin, len(text) + 1)
    return range(begin, len(text[: text.index("<tool_call>")].rstrip()))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("thoughts", ["", "<think>so</think>"])
@pytest.mark.parametrize("words", ["", "one two", "one < two"])
@pytest.mark.parametrize("calls", ["", "\n" + CALL, CALL[:30], f"{CALL}\n{CALL}"])
@settings(max_examples=10)
@given(data=st.data())
def test_each_chance_is_told_once_with_its_words(
    form: ReplyForm, thoughts: str, words: str, calls: str, data: st.DataObject
) -> None:
    text = (thoughts if form.reasoning else "") + words + (calls if form.calling else "")
    ends = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pieces = [text[a:b] for a, b in zip([0, *ends], [*ends, len(text)], strict=True)]
    events, items = told(form, pieces)
    deltas = [event for event in events if event["type"] == "response.output_text.delta"]
    found = [one["at"] for event in deltas for one in event["logprobs"]]
    if words:
        assert found == list(words_in(text, form))
    at = words_in(text, form).start
    for event in deltas:
        for one in event["logprobs"]:
            assert at <= one["at"] <= at + len(event["delta"])
        at += len(event["delta"])
    messages = [item["content"][0] for item in items if item["type"] == "message"]
    assert [message["text"] for message in messages if message["text"]] == [words] * bool(words)
    assert [one["at"] for message in messages for one in message["logprobs"]] == found
    rounds = [
        one["round"] for event in events if "forerun" in event for one in event["forerun"]["trace"]
    ]
    assert rounds == list(range(len(pieces))), "each once, in its order"


@pytest.mark.parametrize("num", range(1, 9))
def test_a_token_that_reaches_into_the_words_is_told_with_them(num: int) -> None:
    """A token of several characters ends the thoughts and begins the words."""
    thoughts, items = "<think>so</think>", OutputItems("resp_1", FORMS[2])
    start = len(thoughts) - num
    chances = [Chance(at, {"at": at}) for at in (0, start, len(thoughts) + 1)]
    pieces = [(thoughts[:start], chances[:1]), (thoughts[start:] + "a", chances[1:2])]
    events = [event for text, new in pieces for event in items.read(text, new)]
    events += items.read("b", chances[2:], is_last=True)
    deltas = [event for event in events if event["type"] == "response.output_text.delta"]
    assert [one["at"] for event in deltas for one in event["logprobs"]] == [start, start + num + 1]


@pytest.mark.parametrize(
    ("text", "statuses"),
    [
        ("one\n" + CALL, ["completed", "completed"]),
        ("one\n" + CALL[:-20], ["completed", "incomplete"]),
        (f"{CALL}\n{CALL[:-20]}", ["completed", "incomplete"]),
        ("one", ["completed"]),
    ],
)
def test_a_call_that_was_cut_off_is_incomplete(text: str, statuses: list[str]) -> None:
    _, items = told(FORMS[1], [text])
    assert [item["status"] for item in items] == statuses
