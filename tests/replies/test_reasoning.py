"""Reasoning before the answer: where it begins and ends in a text, however the text is split."""

from __future__ import annotations

from pathlib import Path

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from forerun.engine_config import KNOWN_NAMES
from forerun.models.opening import load_tokenizer, open_checkpoint
from forerun.models.text.token_bytes import Spelling
from forerun.models.text.tokenizer import Tokenizer, TokenizerTraits
from forerun.replies import PARSERS, Reasoning, ReasoningMarks, ReplyForm, Thoughts
from forerun.tools import Words
from forerun.types import SamplingParams, StructuredOutputsParams

THINK = ReasoningMarks("<think>", "</think>")
OPEN, BEGUN = (ReplyForm(Reasoning(THINK, is_begun=is_begun)) for is_begun in (False, True))
texts = st.text("ab <think/>\n", max_size=24)


def told(form: ReplyForm, pieces: list[str]) -> tuple[str, str]:
    reader, thoughts, words = form.reader(), "", ""
    for idx, text in enumerate(pieces):
        for piece in reader.read(text, is_last=idx == len(pieces) - 1):
            assert isinstance(piece, Thoughts | Words)
            assert piece.text
            if isinstance(piece, Words):
                words += piece.text
            else:
                assert not words, "no thoughts behind words"
                thoughts += piece.text
    return thoughts, words


def cut(text: str, data: st.DataObject) -> list[str]:
    ends = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    return [text[a:b] for a, b in zip([0, *ends], [*ends, len(text)], strict=True)]


@given(texts.filter(lambda text: "</think>" not in text), texts, st.booleans(), st.data())
def test_what_was_written_is_read(
    thoughts: str, words: str, is_begun: bool, data: st.DataObject
) -> None:
    form = BEGUN if is_begun else OPEN
    text = f"{'' if is_begun else '<think>'}{thoughts}</think>{words}"
    expected = thoughts.lstrip().removeprefix("<think>") if is_begun else thoughts
    assert told(form, cut(text, data)) == (expected.strip(), words.lstrip())
    assert form.reasoning is not None
    end = form.reasoning.end_in(text)
    assert end is not None
    assert text[end:] == words.lstrip()


@given(texts, st.sampled_from([OPEN, BEGUN]), st.data())
def test_pieces_are_told_as_the_whole_is(text: str, form: ReplyForm, data: st.DataObject) -> None:
    reply = form.read(text)
    assert told(form, cut(text, data)) == (reply.reasoning, reply.words)
    assert form.reasoning is not None
    end = form.reasoning.end_in(text)
    if end is None:
        assert not reply.words
    else:
        assert text[end:] == reply.words


def test_what_is_known_is_told_at_once() -> None:
    reader = OPEN.reader()
    assert reader.read("\n<thi") == []
    assert reader.read("nk>\n so") == [Thoughts("so")]
    assert reader.read(" it is \n") == [Thoughts(" it is")]
    assert reader.read("</thin") == []
    assert reader.read("k>\n\n") == []
    assert reader.read("A ") == [Words("A ")]
    assert reader.read("") == []
    assert OPEN.reader().read("<b>") == [Words("<b>")]
    assert BEGUN.reader().read("<b>") == [Thoughts("<b>")]


@pytest.mark.parametrize(
    ("prompt", "last", "is_begun"),
    [
        ("user: hi\nassistant: ", "", False),
        ("user: what is <think>?\nassistant: ", "", False),
        ("user: hi\nassistant: <think>\n", "", True),
        ("user: hi\nassistant: <think>\n\n</think>\n\n", "", None),
        ("user: hi\nassistant: <think>\nLet me", "<think>\nLet me", True),
        ("user: hi\nassistant: <think>\nLet me</think> It", "<think>\nLet me</think> It", None),
        ("user: hi\nassistant: It is", "It is", None),
        ("user: hi\nassistant: ", " ", False),
    ],
)
def test_where_a_prompt_leaves_it(prompt: str, last: str, is_begun: bool | None) -> None:
    found = Reasoning.behind(prompt, last, THINK)
    assert (found and found.is_begun) is is_begun
    assert Reasoning.behind(prompt, last, None) is None
    certain = Reasoning.behind(prompt, last, PARSERS["deepseek_r1"])
    assert (certain and certain.is_begun) is (None if is_begun is None else True)
    if found:
        assert found.texts == ("" if is_begun else "<think>", "</think>")


def test_marks_are_those_of_the_parser_or_those_that_the_template_shows(
    tiny_reasoning_path: Path,
) -> None:
    tokenizer = load_tokenizer(open_checkpoint(tiny_reasoning_path, None))
    assert ReasoningMarks.of(tokenizer, None) is None
    assert ReasoningMarks.of(tokenizer, "qwen3") == THINK
    shows = tokenizer.with_chat_template("{{ messages[0].content.split('</think>')[-1] }}")
    assert ReasoningMarks.of(shows, None) == THINK
    assert ReasoningMarks.of(shows, "none") is None
    mistral = ReasoningMarks.of(shows, "mistral")
    assert mistral is not None
    assert mistral.opens == "[THINK]"


def test_marks_that_are_special_tokens_stay_in_the_text() -> None:
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(vocab={"a": 0}, merges=[]))
    backend.add_special_tokens(["[THINK]", "[/THINK]"])
    traits = TokenizerTraits(Spelling.BYTE_LEVEL, special_ids=frozenset({1, 2}))
    marks = ReasoningMarks.of(Tokenizer(backend, traits), "mistral")
    assert marks is not None
    assert marks.is_special
    special, plain = (ReplyForm(Reasoning(each, is_begun=False)) for each in (marks, THINK))
    assert not special.params(SamplingParams()).skip_special_tokens
    assert plain.params(SamplingParams()) == SamplingParams()


def test_what_is_asked_for_comes_behind_it() -> None:
    wanted = SamplingParams(structured_outputs=StructuredOutputsParams(regex="a"))
    found = BEGUN.params(wanted).structured_outputs
    assert found is not None
    assert found.reasoning == ("", "</think>")
    own = StructuredOutputsParams(regex="a", reasoning=("<a>", "</a>"))
    assert OPEN.params(SamplingParams(structured_outputs=own)).structured_outputs is own
    assert ReplyForm().params(wanted) is wanted


def test_names_of_parsers_are_the_same_everywhere() -> None:
    assert (None, *PARSERS) == KNOWN_NAMES["reasoning_parser"]
