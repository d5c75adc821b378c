"""An answer to a conversation, split into its parts, whole or as it streams."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from forerun.replies.reasoning import Reasoning, ReasoningReader
from forerun.tools import Arguments, CallBegun, Calling, ToolCall, Words
from forerun.tools import Piece as Spoken
from forerun.types import SamplingParams


class Thoughts(NamedTuple):
    text: str


Piece = Thoughts | Spoken


class Reply(NamedTuple):
    """The parts of a finished answer; `is_whole`: it was not cut off within a call."""

    reasoning: str
    words: str
    calls: tuple[ToolCall, ...]
    is_whole: bool


@dataclass(frozen=True)
class ReplyForm:
    """What an answer may have besides words: `reasoning` before them, and calls among them or
    instead of them."""

    reasoning: Reasoning | None = None
    calling: Calling | None = None

    @property
    def is_plain(self) -> bool:
        """Whether the answer is nothing but words."""
        return self.reasoning is None and self.calling is None

    def params(self, given: SamplingParams) -> SamplingParams:
        """Return the engine's options for such an answer: constraints on words and calls, none on
        the reasoning."""
        found = self.calling.params(given) if self.calling else given
        if self.reasoning is None:
            return found
        structure = found.structured_outputs
        if structure is not None and structure.reasoning is None:
            structure = replace(structure, reasoning=self.reasoning.texts)
        skips = found.skip_special_tokens and not self.reasoning.marks.is_special
        return replace(found, structured_outputs=structure, skip_special_tokens=skips)

    def reader(self) -> ReplyReader:
        return ReplyReader(self)

    def read(self, text: str) -> Reply:
        thoughts, words, names, arguments = "", "", list[str](), list[str]()
        reader = self.reader()
        for piece in reader.read(text, is_last=True):
            if isinstance(piece, Thoughts):
                thoughts += piece.text
            elif isinstance(piece, Words):
                words += piece.text
            elif isinstance(piece, CallBegun):
                names.append(piece.name)
                arguments.append("")
            elif isinstance(piece, Arguments):
                arguments[-1] += piece.text
        pairs = zip(names, arguments, strict=True)
        calls = tuple(ToolCall(*pair, self.fresh_id()) for pair in pairs)
        return Reply(thoughts, words, calls, reader.is_whole)

    def fresh_id(self) -> str:
        """Return a new id for a call."""
        assert self.calling is not None, "an answer without tools calls nothing"
        return self.calling.fresh_id()


WORDS_ALONE: Final = ReplyForm()


class ReplyReader:
    """Splits an answer into its parts as it streams."""

    def __init__(self, form: ReplyForm) -> None:
        self._reasoning = ReasoningReader(form.reasoning) if form.reasoning else None
        self._calls = form.calling.reader() if form.calling else None

    def read(self, text: str, *, is_last: bool = False) -> list[Piece]:
        """Take more text; returns the pieces that are decided by it."""
        thoughts = ""
        if self._reasoning is not None:
            thoughts, text = self._reasoning.read(text, is_last=is_last)
        pieces: list[Piece] = [Thoughts(thoughts)] if thoughts else []
        if self._calls is not None:
            return pieces + self._calls.read(text, is_last=is_last)
        return [*pieces, Words(text)] if text else pieces

    @property
    def num_calls(self) -> int:
        return self._calls.num_calls if self._calls else 0

    @property
    def is_whole(self) -> bool:
        """Whether every call that has begun has ended."""
        return self._calls is None or self._calls.is_whole
