"""The constraint on answers that may call tools."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from forerun.errors import GrammarTooMuch, InvalidGrammar, InvalidOption
from forerun.grammars.schemas import Schema, closed
from forerun.tools.following import Check, Following
from forerun.tools.formats import CallFormat
from forerun.tools.schemas import ANY_OBJECT
from forerun.tools.tool import Tool
from forerun.types import StructuredOutputsParams

_MOST_CHARS: Final = 1 << 16  # of rules that allow calls in blocks, too


@dataclass(frozen=True)
class Wanted:
    """What a request asks for: `answer` constrains an answer without calls, `repeats` allows
    several calls."""

    form: CallFormat
    tools: tuple[Tool, ...]
    must_call: bool
    repeats: bool
    answer: StructuredOutputsParams | None

    @property
    def nearest(self) -> Wanted:
        """This, without `blocks` if a call is required, if the rules are long, or if the answer may
        be JSON too, from which calls in blocks could not be told."""
        may_choose = not self.must_call and self.answer is None
        if self.form.blocks and may_choose and len(self._rules) <= _MOST_CHARS:
            return self
        return replace(self, form=replace(self.form, blocks=(), layouts=()))

    def structure(self, check: Check, following: Following) -> StructuredOutputsParams:
        """Return the constraint; what cannot be enforced of non-strict tools is dropped."""
        self._check_answer()
        try:
            found = self._written(self._rules)
            check(found)
        except GrammarTooMuch as error:
            raise _too_many(error) from None
        except InvalidGrammar:
            found = self._written(self._rules_of(following.nearest_of(self.tools)))
            try:
                check(found)
            except InvalidGrammar as error:
                raise _too_many(error) from None
        return found

    @cached_property
    def _rules(self) -> str:
        return self._rules_of({tool.name: tool.schema for tool in self.tools})

    def _rules_of(self, schemas: dict[str, Schema]) -> str:
        return self.form.rules(schemas, repeats=self.repeats)

    def _written(self, rules: str) -> StructuredOutputsParams:
        if self.must_call:
            return StructuredOutputsParams(grammar=f"start: calls\n{rules}")
        if self.answer is None:
            triggers = self.form.triggers(self.tools)
            return StructuredOutputsParams(grammar=f"start: calls\n{rules}", triggers=triggers)
        asked = self.answer.json
        schema = closed(json.loads(asked)) if isinstance(asked, str) else ANY_OBJECT
        text = f"start: calls | answer\nanswer: %json {json.dumps(schema)}\n{rules}"
        return StructuredOutputsParams(grammar=text)

    def _check_answer(self) -> None:
        answer = self.answer
        if answer is None:
            return
        is_spaced = answer.disable_any_whitespace or answer.whitespace_pattern is not None
        is_json = answer.json is not None or answer.json_object
        if is_spaced or answer.reasoning or not is_json:
            raise InvalidOption(
                "structured_outputs beside tools can only be json or json_object; drop one."
            )
        if self.form.trigger is None and not self.must_call:
            raise InvalidOption(
                f"structured_outputs beside tools cannot be told from calls of {self.form.name}, "
                f"which are JSON as well; drop one."
            )


def _too_many(error: InvalidGrammar) -> InvalidGrammar:
    return InvalidGrammar(
        f"the tools cannot be followed together ({error.reason}); give fewer, or shorter ones."
    )
