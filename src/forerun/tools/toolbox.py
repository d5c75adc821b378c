"""The tools of requests to one model: checked, turned into grammars, and shown in prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, Final

from forerun.errors import InvalidOption, InvalidTemplate
from forerun.grammars import Grammars
from forerun.models.text.chat_template import Messages
from forerun.models.text.tokenizer import Tokenizer
from forerun.option_checks import require
from forerun.tools.calling import Calling
from forerun.tools.choice import ToolChoice
from forerun.tools.following import Following
from forerun.tools.formats import CallFormat
from forerun.tools.messages import in_words, with_values
from forerun.tools.structure import Wanted
from forerun.tools.tool import Tool
from forerun.types import StructuredOutputsParams

MAX_TOOLS: Final = 512
_MAX_KEPT: Final = 64  # grammars; clients send the same tools with every request


class Toolbox:
    """`parser` names the format of calls; None: the format that the chat template shows."""

    def __init__(self, tokenizer: Tokenizer, grammars: Grammars, parser: str | None) -> None:
        self._tokenizer = tokenizer
        self._parser = parser
        self.check = grammars.check
        following = Following(grammars.check, lambda: grammars.seconds)

        @lru_cache(_MAX_KEPT)
        def settled(wanted: Wanted) -> tuple[CallFormat, StructuredOutputsParams]:
            """Return the format of calls, and the constraint on the answer."""
            nearest = wanted.nearest
            return nearest.form, nearest.structure(grammars.check, following)

        self._settled = settled

    @cached_property
    def form(self) -> CallFormat:
        return CallFormat.of(self._tokenizer, self._parser)

    def calling(
        self,
        tools: Sequence[Any] | None,
        choice: Any = None,
        repeats: bool | None = None,
        answer: StructuredOutputsParams | None = None,
    ) -> Calling | None:
        """Return what a request may call, or None if it may call nothing; the prompt then lists no
        tools either.

        `repeats` is `parallel_tool_calls`. If `answer` is given, an answer without calls fits it.
        """
        require(isinstance(repeats, bool | None), "parallel_tool_calls", repeats, "true or false")
        if not isinstance(tools, list | tuple | None):
            raise InvalidOption("tools are no list; give one of OpenAI's form.")
        shown = tuple(map(Tool.of, tools or ()))
        _check_names(shown)
        chosen = ToolChoice.of(choice)
        usable = tuple(chosen.among(shown))
        if not usable:
            return None
        must_call = chosen.mode == "required"
        is_repeated = repeats is not False and not chosen.is_once
        wanted = Wanted(self.form, usable, must_call, is_repeated, answer)
        form, structure = self._settled(wanted)
        return Calling(form, shown, usable, structure, must_call)

    def told(
        self, messages: Messages, shown: Sequence[Tool], variables: Mapping[str, Any]
    ) -> tuple[Messages, Mapping[str, Any]]:
        """Return the messages and template variables that show the model its tools."""
        messages = with_values(messages)
        if self._is_in_template:
            tools = [tool.as_dict() for tool in shown]
            return messages, {**variables, "tools": tools} if tools else variables
        has_calls = any(m.get("tool_calls") or m.get("role") == "tool" for m in messages)
        if not shown and not has_calls:
            return messages, variables
        role = "system" if self._takes_system else "user"
        return in_words(messages, shown, self.form, role), variables

    @property
    def _is_in_template(self) -> bool:
        """Whether the chat template shows tools itself; if not, a message describes them."""
        tokenizer = self._tokenizer
        return not tokenizer.has_chat_template or "tools" in tokenizer.template_reads

    @cached_property
    def _takes_system(self) -> bool:
        """Whether the chat template accepts system messages."""
        turns = [{"role": role, "content": "a"} for role in ("system", "user")]
        try:
            self._tokenizer.apply_chat_template(turns)
        except InvalidTemplate:
            return False
        return True


def _check_names(tools: Sequence[Tool]) -> None:
    if len(tools) > MAX_TOOLS:
        raise InvalidOption(f"{len(tools)} tools are more than {MAX_TOOLS}; give fewer.")
    names = [tool.name for tool in tools]
    for name in names:
        if names.count(name) > 1:
            raise InvalidOption(f"two tools are called {name!r}; give each a name of its own.")
