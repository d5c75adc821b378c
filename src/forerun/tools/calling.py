"""What one request may call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from forerun.errors import InvalidGrammar, InvalidOption
from forerun.tools.call import ToolCall, fresh_call_id
from forerun.tools.choice import ToolChoice
from forerun.tools.formats import CallFormat
from forerun.tools.reading import Arguments, CallBegun, CallReader, Words
from forerun.tools.tool import Tool
from forerun.types import SamplingParams, StructuredOutputsParams

MAX_TOOLS: Final = 512
Check = Callable[[StructuredOutputsParams], object]  # raises `InvalidGrammar`


class Reply(NamedTuple):
    """An answer as a whole."""

    words: str
    calls: tuple[ToolCall, ...]


@dataclass(frozen=True)
class Calling:
    """`tools` are those that may be called, `shown` those that the model is told of.

    `structure` is what the answer must look like: words, in which calls may begin, or calls alone.
    """

    form: CallFormat
    shown: Sequence[Tool]
    tools: Sequence[Tool]
    structure: StructuredOutputsParams

    @classmethod
    def of(
        cls,
        form: CallFormat,
        tools: Iterable[Any],
        choice: Any,
        check: Check,
        *,
        repeats: bool = True,
        answer: StructuredOutputsParams | None = None,
    ) -> Calling | None:
        """None where nothing may be called: then the model is not told of any tool, either.
        `answer` is what words must look like, if they must; `repeats` allows several calls."""
        shown = [tool if isinstance(tool, Tool) else Tool.of(tool) for tool in tools]
        _check_names(shown)
        chosen = ToolChoice.of(choice)
        usable = chosen.among(shown)
        if not usable:
            if chosen.mode == "required":
                raise InvalidOption(
                    "tool_choice asks for a call, and there are no tools; give some."
                )
            return None
        is_free = chosen.mode == "auto"
        repeats = repeats and not chosen.is_once
        write = _Grammar(form, usable, repeats, is_free, answer if is_free else None)
        structure = write(())
        try:
            check(structure)
        except InvalidGrammar:
            loose = [tool.name for tool in usable if not _is_followed(tool, check)]
            if not loose:
                raise
            structure = write(loose)
            check(structure)
        return cls(form, shown, usable, structure)

    def params(self, given: SamplingParams) -> SamplingParams:
        skips = given.skip_special_tokens and not self.form.is_special
        return replace(given, structured_outputs=self.structure, skip_special_tokens=skips)

    def reader(self) -> CallReader:
        return CallReader(self.form, [tool.name for tool in self.tools])

    def read(self, text: str) -> Reply:
        words, names, arguments = "", list[str](), list[str]()
        for piece in self.reader().read(text, is_last=True):
            if isinstance(piece, Words):
                words += piece.text
            elif isinstance(piece, CallBegun):
                names.append(piece.name)
                arguments.append("")
            elif isinstance(piece, Arguments):
                arguments[-1] += piece.text
        found = zip(names, arguments, strict=True)
        return Reply(words, tuple(ToolCall(*each, self.fresh_id()) for each in found))

    def fresh_id(self) -> str:
        return fresh_call_id(self.form.id_len)


class _Grammar(NamedTuple):
    form: CallFormat
    tools: Sequence[Tool]
    repeats: bool
    is_free: bool
    answer: StructuredOutputsParams | None

    def __call__(self, any_object: Sequence[str]) -> StructuredOutputsParams:
        rules = self.form.rules(self.tools, any_object, repeats=self.repeats)
        if self.answer is not None:
            if self.answer.json is None and not self.answer.json_object:
                raise InvalidOption(
                    "structured_outputs beside tools can only be json or json_object; drop one."
                )
            schema = self.answer.json or '{"type": "object"}'
            text = f"start: calls | answer\nanswer: %json {schema}\n{rules}"
            return StructuredOutputsParams(grammar=text)
        triggers = self.form.triggers(self.tools) if self.is_free else None
        return StructuredOutputsParams(grammar=f"start: calls\n{rules}", triggers=triggers)


def _is_followed(tool: Tool, check: Check) -> bool:
    """Whether its schema is one that can be followed; if not, arguments are any object."""
    try:
        check(StructuredOutputsParams(json=tool.schema))
    except InvalidGrammar as error:
        if tool.is_strict:
            raise InvalidGrammar(f"the parameters of tool {tool.name!r}: {error}") from None
        return False
    return True


def _check_names(tools: Sequence[Tool]) -> None:
    if len(tools) > MAX_TOOLS:
        raise InvalidOption(f"{len(tools)} tools are more than {MAX_TOOLS}; give fewer.")
    names = [tool.name for tool in tools]
    for name in names:
        if names.count(name) > 1:
            raise InvalidOption(f"two tools are called {name!r}; give each a name of its own.")
