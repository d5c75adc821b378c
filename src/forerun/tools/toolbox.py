"""Tools beside one model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from forerun.errors import InvalidOption
from forerun.grammars import Grammars
from forerun.models.text.chat_template import Messages
from forerun.models.text.tokenizer import Tokenizer
from forerun.tools.calling import Calling
from forerun.tools.formats import CallFormat
from forerun.tools.messages import in_words, with_values
from forerun.types import StructuredOutputsParams


class Toolbox:
    """`parser` names how calls are written; None: as the chat template shows it."""

    def __init__(self, tokenizer: Tokenizer, grammars: Grammars, parser: str | None) -> None:
        self._tokenizer = tokenizer
        self._grammars = grammars
        self._parser = parser

    @cached_property
    def form(self) -> CallFormat:
        return CallFormat.of(self._tokenizer, self._parser)

    @property
    def is_in_template(self) -> bool:
        """Whether the chat template knows tools, or they are told of in a message."""
        tokenizer = self._tokenizer
        return not tokenizer.has_chat_template or "tools" in tokenizer.template_reads

    def calling(
        self,
        tools: Sequence[Any] | None,
        choice: Any = None,
        repeats: bool = True,
        answer: StructuredOutputsParams | None = None,
    ) -> Calling | None:
        """What one request may call: see `Calling.of`."""
        if not tools and choice in (None, "auto", "none"):
            return None
        if not isinstance(tools, list | tuple):
            raise InvalidOption("tools are no list; give one of OpenAI's form.")
        check = self._grammars.of
        return Calling.of(self.form, tools, choice, check, repeats=repeats, answer=answer)

    def told(
        self, messages: Messages, calling: Calling | None, variables: Mapping[str, Any]
    ) -> tuple[Messages, Mapping[str, Any]]:
        """Messages and variables for the chat template."""
        messages, shown = with_values(messages), calling.shown if calling else ()
        if self.is_in_template:
            tools = [tool.as_dict() for tool in shown]
            return messages, {**variables, "tools": tools} if tools else variables
        has_calls = any(m.get("tool_calls") or m.get("role") == "tool" for m in messages)
        is_plain = not shown and not has_calls
        return messages if is_plain else in_words(messages, shown, self.form), variables
