"""What one request may call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from forerun.tools.call import fresh_call_id
from forerun.tools.formats import CallFormat
from forerun.tools.reading import CallReader
from forerun.tools.tool import Tool
from forerun.types import SamplingParams, StructuredOutputsParams


@dataclass(frozen=True)
class Calling:
    """`tools` may be called; the prompt lists those in `shown`.

    `structure` constrains the answer: text in which calls may begin, or calls alone if it
    `must_call`.
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

    def fresh_id(self) -> str:
        return fresh_call_id(self.form.id_len)
