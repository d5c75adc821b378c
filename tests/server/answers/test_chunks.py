"""A stream's chunks: those that are put together around a text are what the whole would be."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from forerun.engine.api.outputs import CompletionOutput
from forerun.server.answers.chat import ChatForm
from forerun.server.answers.completions import CompletionForm
from forerun.server.answers.delta import Delta
from forerun.server.answers.form import ChunkForm
from forerun.server.answers.group import Group

TEXTS = ("a", 'he said "no"', "\0", "\\u0000", "é\n\u2028 end", "\ud7ff😀")


USAGE = {"completion_tokens": 3}


class FakeGroup:
    usage = USAGE


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
            expected = {"includes_usage": None, "continuous_usage": USAGE}
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
