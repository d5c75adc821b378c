"""A stream's chunks, which are written around each text, add up to the whole answer."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from forerun.engine.api.outputs import CompletionOutput
from forerun.replies import ReplyForm
from forerun.server.answers.chat import ChatForm
from forerun.server.answers.completions import CompletionForm
from forerun.server.answers.delta import Delta
from forerun.server.answers.form import ChunkForm
from forerun.server.answers.group import Group
from forerun.tools import FORMATS, Calling, Tool
from forerun.types import StructuredOutputsParams

TEXTS = ("a", 'he said "no"', "\0", "\\u0000", "é\n\u2028 end", "\ud7ff😀")


USAGE = {"completion_tokens": 3}


class FakeGroup:
    usage = USAGE

    def usage_of(self, delta: Delta) -> dict[str, int]:
        return {"completion_tokens": delta.num_before + len(delta.tokens), "of": delta.index}


def form_of(kind: type[ChunkForm], **more: Any) -> ChunkForm:
    return kind(
        group=cast(Group, FakeGroup()),
        id="x",
        created=1,
        model='m"',
        fingerprint="fp",
        tokenizer=cast(Any, None),
        **more,
    )


def delta_of(text: str, num_before: int = 1, index: int = 0, is_last: bool = False) -> Delta:
    ended = CompletionOutput(0, text, (), "stop", None, 0, (), None, {}) if is_last else None
    return Delta(index, text, (7,), (), (), num_before, ended)


def told(form: ChunkForm, *deltas: Delta) -> list[dict[str, Any]]:
    lines = form.chunks(deltas).decode().removesuffix("\n\n").split("\n\n")
    return [json.loads(line.removeprefix("data: ")) for line in lines if line]


@pytest.mark.parametrize("kind", [ChatForm, CompletionForm])
@pytest.mark.parametrize("usage", ["none", "includes_usage", "continuous_usage"])
def test_a_text_is_told_as_any_other_choice(kind: type[ChunkForm], usage: str) -> None:
    form = form_of(kind, **({} if usage == "none" else {usage: True}))
    for index in (0, 3):
        for text in TEXTS:
            (chunk,) = told(form, delta_of(text, index=index))
            assert chunk["choices"] == list(form.choices(delta_of(text, index=index)))
            assert (chunk["id"], chunk["object"], chunk["model"]) == ("x", form.chunk_kind, 'm"')
            own = {"completion_tokens": 2, "of": index}
            expected = {"includes_usage": None, "continuous_usage": own}
            assert chunk.get("usage", "none") == expected.get(usage, "none")


def test_a_step_is_one_write_and_what_says_nothing_is_left_out() -> None:
    form = form_of(ChatForm)
    first, second, last = delta_of("a", 0), delta_of("b", index=1), delta_of("", is_last=True)
    chunks = told(form, first, delta_of(""), second, last)
    assert [chunk["choices"][0]["delta"] for chunk in chunks] == [
        {"role": "assistant", "content": "", "refusal": None},
        {"content": "a"},
        {"content": "b"},
        {},
    ]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None, None, None, "stop"]
    assert form.closing() == b""


def called(pieces: list[str]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the choices of all chunks, and the choice of the whole answer."""
    calling = Calling(FORMATS["hermes"], [], [Tool("add")], StructuredOutputsParams(json={}))
    form, last = form_of(ChatForm, reply=ReplyForm(calling=calling)), len(pieces) - 1
    deltas = [delta_of(text, idx, is_last=idx == last) for idx, text in enumerate(pieces)]
    chunks = told(form, *deltas)
    (choice,) = form.whole([Delta.joined(deltas)])["choices"]
    return [choice for chunk in chunks for choice in chunk["choices"]], choice


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_words_and_then_calls(size: int) -> None:
    """However a text is split, its chunks say the same as the whole answer."""
    calls = [("add", '{"a": "}"}'), ("add", "{}")]
    text = "Let me add <that>.\n\n" + FORMATS["hermes"].written(calls)
    choices, whole = called([text[at : at + size] for at in range(0, len(text), size)])
    assert "".join(c["delta"].get("content", "") for c in choices) == "Let me add <that>."
    parts = [part for c in choices for part in c["delta"].get("tool_calls", ())]
    for index, (name, arguments) in enumerate(calls):
        own = [part for part in parts if part["index"] == index]
        assert own[0]["id"].startswith("call_")
        assert own[0]["function"]["name"] == name
        assert "".join(part["function"]["arguments"] for part in own) == arguments
    assert [c["finish_reason"] for c in choices if c["finish_reason"]] == ["tool_calls"]
    assert choices[-1]["finish_reason"] == "tool_calls"
    message = whole["message"]
    assert message["content"] == "Let me add <that>."
    assert [
        (each["function"]["name"], each["function"]["arguments"]) for each in message["tool_calls"]
    ] == calls
    assert whole["finish_reason"] == "tool_calls"


def test_without_a_call_words_are_words() -> None:
    choices, whole = called(["a <tool", "_call> ", ""])
    assert "".join(c["delta"].get("content", "") for c in choices) == "a <tool_call> "
    assert choices[-1]["finish_reason"] == whole["finish_reason"] == "stop"
    assert whole["message"] == {"role": "assistant", "content": "a <tool_call> ", "refusal": None}
