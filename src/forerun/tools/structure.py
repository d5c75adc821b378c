"""What an answer must look like, where tools may be called."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from forerun.errors import InvalidGrammar, InvalidOption
from forerun.tools.formats import CallFormat
from forerun.tools.schemas import ANY_OBJECT, Schema, what_is_followed
from forerun.tools.tool import Tool
from forerun.types import StructuredOutputsParams

Check = Callable[[StructuredOutputsParams], None]  # raises `InvalidGrammar`


@dataclass(frozen=True)
class Wanted:
    """`answer` is what words must look like, if they must; `repeats` allows several calls."""

    form: CallFormat
    tools: tuple[Tool, ...]
    must_call: bool
    repeats: bool
    answer: StructuredOutputsParams | None

    def structure(self, check: Check) -> StructuredOutputsParams:
        """Keywords that cannot be followed are left out where a tool is not strict."""
        self._check_answer()
        try:
            found = self._written({tool.name: tool.schema for tool in self.tools})
            check(found)
        except InvalidGrammar:
            found = self._written({tool.name: _followed(tool, check) for tool in self.tools})
            try:
                check(found)
            except InvalidGrammar as error:
                raise InvalidGrammar(f"the tools cannot be followed: {error}") from None
        return found

    def _written(self, schemas: dict[str, Schema]) -> StructuredOutputsParams:
        rules = self.form.rules(schemas, repeats=self.repeats)
        if self.must_call:
            return StructuredOutputsParams(grammar=f"start: calls\n{rules}")
        if self.answer is None:
            triggers = self.form.triggers(self.tools)
            return StructuredOutputsParams(grammar=f"start: calls\n{rules}", triggers=triggers)
        schema = self.answer.json or json.dumps(ANY_OBJECT)
        text = f"start: calls | answer\nanswer: %json {schema}\n{rules}"
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


def _followed(tool: Tool, check: Check) -> Schema:
    """The nearest to its schema that can be."""
    for schema in (tool.schema, what_is_followed(tool.schema)):
        try:
            check(StructuredOutputsParams(json=schema))
        except InvalidOption as error:
            if tool.is_strict:
                raise InvalidGrammar(f"the parameters of tool {tool.name!r}: {error}") from None
        else:
            found: Schema = schema
            return found
    return ANY_OBJECT
