"""What one request may call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from forerun.tools.call import ToolCall, fresh_call_id
from forerun.tools.formats import CallFormat
from forerun.tools.reading import Arguments, CallBegun, CallReader, Words
from forerun.tools.tool import Tool
from forerun.types import SamplingParams, StructuredOutputsParams


class Reply(NamedTuple):
    """An answer as a whole; `is_whole`: it was not cut off within a call."""

    words: str
    calls: tuple[ToolCall, ...]
    is_whole: bool


@dataclass(frozen=True)
class Calling:
    """`tools` are those that may be called, `shown` those that the model is told of.

    `structure` is what the answer must look like: words, in which calls may begin, or, where it
    `must_call`, calls alone.
    """

    form: CallFormat
    shown: Sequence[Tool]
    tools: Sequence[Tool]
    structure: StructuredOutputsParams
    must_call: bool = False

    def params(self, given: SamplingParams) -> SamplingParams:
        skips = given.skip_special_tokens and not self.form.is_special
        return replace(given, structured_outputs=self.structure, skip_special_tokens=skips)

    def reader(self) -> CallReader:
        return CallReader(self.form, self.tools, has_words=not self.must_call)

    def read(self, text: str) -> Reply:
        words, names, arguments = "", list[str](), list[str]()
        reader = self.reader()
        for piece in reader.read(text, is_last=True):
            if isinstance(piece, Words):
                words += piece.text
            elif isinstance(piece, CallBegun):
                names.append(piece.name)
                arguments.append("")
            elif isinstance(piece, Arguments):
                arguments[-1] += piece.text
        calls = [ToolCall(*each, self.fresh_id()) for each in zip(names, arguments, strict=True)]
        return Reply(words, tuple(calls), reader.is_whole)

    def fresh_id(self) -> str:
        return fresh_call_id(self.form.id_len)
